-- When the next row becomes eligible by the passing of time alone, in a table that is not indexed by namespace.
-- $1 namespaces or null for all, $2 tenant or null
-- Uses the table's indexes on the status and the due time, and on the lock.
select least(
  (select {due_at} from {table} where {pending} and {in_scope} order by {due_at} limit 1),
  (select now() from {table} where {pending} and {undated} and {in_scope} limit 1),
  (select {lease_end} from {table} where {processing} and {in_scope} order by {locked} limit 1),
  (select now() from {table} where {processing} and {unlocked} and {in_scope} limit 1)
)::timestamptz as due_at, now() as now
