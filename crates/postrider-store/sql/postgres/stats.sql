-- Counts what waits, runs and is dead.
-- $1 namespaces or null for all, $2 tenant or null
-- Uses {name}_due_idx, {name}_lease_idx and {name}_finished_idx.
select
  waiting.pending,
  waiting.due,
  (select count(*) from {table} where {processing} and {in_scope}) as processing,
  (select count(*) from {table} where {dead} and {in_scope}) as dead,
  waiting.oldest,
  now() as now
from (
  select count(*) as pending,
         count(*) filter (where {due_or_undated}) as due,
         (min({due_at}) filter (where {due_or_undated}))::timestamptz as oldest
  from {table}
  where {pending} and {in_scope}) as waiting
