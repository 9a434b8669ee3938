-- Locks rows whose worker died on them repeatedly; claim_expired.sql leaves them out.
-- Max attempts twice, the scope, limit
-- Uses {name}_lease_idx, with order per key {name}_key_idx.
select {row_key}, {size} as size, coalesce({micros_of} {locked}), 0) as since
from {table}{as_mine}{by_lease}
where {processing} and {lease_over}
  and {may_try} and {suspect}{and_in_turn}
  {in_scope}
order by {lease_order}
limit ?
for update skip locked
