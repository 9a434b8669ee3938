-- How many rows finished long ago.
-- Age µs as a negative number, the scope
-- Uses {name}_lease_idx.
select count(*)
from {table}{by_lease}
where {finished} and {unleased} and {touched} <= timestampadd(microsecond, ?, {now})
  {in_scope}
