-- Takes rows whose worker died on them repeatedly; claim.sql leaves them out.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit, ?6 worker, ?7 lease µs
-- Uses {name}_lease_idx, with order per key {name}_key_idx, then the rows' numbers.
with picked as (
  select {number} as seq
  from {table}{as_mine}
  where {processing} and {lease_over ?4}
    and {may_try ?3} and {suspect ?3}
    and {in_scope}{and_in_turn}
  order by {locked}
  limit ?5
)
{take}
