-- Whether rows that were due when they were written lie in the future, because the clock was set back while no relay ran.
-- ?1 now and what is tolerated, µs since 1970
-- Reads the waiting rows, once per process.
select exists (
  select 1 from {table}
  where status = 'pending' and next_attempt_at > ?1 and next_attempt_at = created_at and attempts = 0)
