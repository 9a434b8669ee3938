-- How many rows finished long ago.
-- Age µs as a negative number, the scope
-- Uses {name}_lease_idx.
select count(*)
from {table} force index ({name}_lease_idx)
where status = '{finished}' and {unleased} and updated_at <= timestampadd(microsecond, ?, {now})
  {in_scope}
