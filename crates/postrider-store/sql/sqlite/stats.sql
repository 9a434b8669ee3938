-- Counts what waits, runs and is dead.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 now
-- Uses {name}_due_idx, {name}_lease_idx and {name}_dead_idx.
select
  waiting.pending,
  waiting.due,
  (select count(*) from {table} where {processing} and {in_scope}) as processing,
  (select count(*) from {table} where {dead} and {in_scope}) as dead,
  waiting.oldest
from (
  select count(*) as pending,
         count(*) filter (where {due ?3}) as due,
         min({due_at}) filter (where {due ?3}) as oldest
  from {table}
  where {pending} and {in_scope}) as waiting
