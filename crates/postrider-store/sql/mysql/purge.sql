-- Locks rows that finished long ago.
-- Age µs as a negative number, the scope, limit
-- Uses {name}_lease_idx.
select {row_key}
from {table}{by_lease}
where {finished} and {unleased} and {touched} <= timestampadd(microsecond, ?, {now})
  {in_scope}
order by {touched}, {number}
limit ?
for update skip locked
