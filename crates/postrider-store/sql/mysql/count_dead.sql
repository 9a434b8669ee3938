-- How many dead messages there are.
-- The scope, the filter (see the fragment {asked})
-- Uses {name}_lease_idx.
select count(*)
from {table}{by_lease}
where {dead}
  {in_scope}
  {asked}
