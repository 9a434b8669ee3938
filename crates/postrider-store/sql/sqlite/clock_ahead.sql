-- Whether there are rows for clock_fresh.sql: due or with a delay when they were written, and written later than now.
-- ?1 now and what is tolerated, µs since 1970
-- Reads the waiting rows, once when a relay starts and whenever its clock is seen to go back.
select exists (
  select 1 from {table}
  where {pending} and {due_at} > ?1 and {created_at} > ?1 and {attempts} = 0
    and ({due_at} = {created_at}{or_delayed}))
