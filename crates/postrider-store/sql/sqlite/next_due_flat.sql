-- When the next row becomes eligible by the passing of time alone, in a table that is not indexed by namespace.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null
-- Uses the table's indexes on the status and the due time, and on the lock.
-- Nulls come first: what says no time is due, and nobody's.
select min(due_at) from (
  select * from (select coalesce({due_at}, 0) as due_at from {table} where {pending} and {in_scope} order by {due_at} limit 1)
  union all
  select * from (select coalesce({lease_end}, 0) from {table} where {processing} and {in_scope} order by {locked} limit 1))
