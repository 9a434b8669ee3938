-- Whether rows wait that claim_suspects.sql would take.
-- Max attempts twice, the scope
-- Uses {name}_lease_idx.
select 1
from {table} force index ({name}_lease_idx)
where status = 'processing' and locked_until < {now}
  and attempts < coalesce(max_attempts, ?) and {suspect}
  {in_scope}
limit 1
