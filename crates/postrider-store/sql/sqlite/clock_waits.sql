-- After the clock was set back: back-offs and delays keep what is left of them. Times of the day that a producer asked for stay.
-- ?1 now, ?2 by how much it was set back, µs
-- Reads the waiting rows. A row with a delay says so by its updated_at, if the table has it; it is moved if it was there when the time was last noted, and clock_fresh.sql cares for younger ones.
update {table} set {due_at} = max(?1, {due_at} - ?2){touch}
where {pending} and {due_at} > ?1 and {due_at} <> {created_at}
  and {waited}
