-- Locks rows that finished long ago.
-- Age µs as a negative number, the scope, limit
-- Uses {name}_lease_idx.
select seq
from {table} force index ({name}_lease_idx)
where status = '{finished}' and {unleased} and updated_at <= timestampadd(microsecond, ?, {now})
  {in_scope}
order by updated_at, seq
limit ?
for update skip locked
