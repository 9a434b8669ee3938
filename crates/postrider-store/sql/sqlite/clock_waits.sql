-- After the clock was set back: back-offs and delays keep what is left of them. Times of the day that a producer asked for stay.
-- ?1 now, ?2 by how much it was set back, µs
-- Reads the waiting rows. A row with a delay says so by its updated_at; it is moved if it was there when the time was last noted, and clock_fresh.sql cares for younger ones.
update {table} set next_attempt_at = max(?1, next_attempt_at - ?2), updated_at = ?1
where status = 'pending' and next_attempt_at > ?1 and next_attempt_at <> created_at
  and (attempts > 0 or updated_at not in (created_at, created_at + 1)
    or updated_at = created_at + 1 and seq <= (select newest from {clock}))
