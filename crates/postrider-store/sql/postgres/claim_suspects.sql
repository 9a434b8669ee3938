-- Takes rows whose worker died on them repeatedly; claim.sql leaves them out.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs
-- Uses {name}_lease_idx, with order per key {name}_key_idx, then the rows' addresses.
with picked as materialized (
  select ctid, {attempts} as few
  from {table}{as_mine}
  where {processing} and {lease_over}
    and {may_try} and {suspect}
    and {in_scope}{and_in_turn}
  order by {locked}
  limit $4::bigint
  for update skip locked
)
{take}
