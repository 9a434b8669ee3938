-- Whether rows wait that claim_suspects.sql would take.
-- Max attempts twice, the scope
-- Uses {name}_lease_idx.
select 1
from {table}{by_lease}
where {processing} and {lease_over}
  and {may_try} and {suspect}
  {in_scope}
limit 1
