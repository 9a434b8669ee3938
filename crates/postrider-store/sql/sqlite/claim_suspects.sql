-- Takes rows whose worker died on them repeatedly; claim.sql leaves them out.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit, ?6 worker, ?7 lease µs
-- Uses {name}_lease_idx, with order per key {name}_key_idx, then the rows' numbers.
with picked as (
  select seq
  from {table}{as_mine}
  where status = 'processing' and locked_until < ?4
    and attempts < coalesce(max_attempts, ?3) and {suspect}
    and {in_scope}{and_in_turn}
  order by locked_until
  limit ?5
)
{take}
