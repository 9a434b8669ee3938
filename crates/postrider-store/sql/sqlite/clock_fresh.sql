-- After the clock was set back: what was due when it was written is due, and delays that were asked for later than now begin now.
-- ?1 now, µs since 1970
-- Reads the waiting rows.
update {table} set next_attempt_at = ?1 + (next_attempt_at - created_at), updated_at = ?1
where status = 'pending' and next_attempt_at > ?1
  and (next_attempt_at = created_at or attempts = 0 and updated_at = created_at + 1 and created_at > ?1)
