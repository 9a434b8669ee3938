-- After the clock was set back: what was due when it was written is due, and delays that were asked for later than now begin now.
-- ?1 now, µs since 1970
-- Reads the waiting rows.
update {table} set {due_at} = ?1 + ({due_at} - {created_at}){touch}
where {pending} and {due_at} > ?1
  and ({due_at} = {created_at}{or_delayed_later})
