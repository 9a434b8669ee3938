-- Counts what waits, runs and is dead.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 now
-- Uses {name}_due_idx, {name}_lease_idx and {name}_dead_idx.
select
  waiting.pending,
  waiting.due,
  (select count(*) from {table} where status = 'processing' and {in_scope}) as processing,
  (select count(*) from {table} where status = 'dead' and {in_scope}) as dead,
  waiting.oldest
from (
  select count(*) as pending,
         count(*) filter (where next_attempt_at <= ?3) as due,
         min(next_attempt_at) filter (where next_attempt_at <= ?3) as oldest
  from {table}
  where status = 'pending' and {in_scope}) as waiting
