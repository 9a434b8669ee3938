-- Locks the dead messages that an operator changes, those that died first.
-- The scope, the filter (see the fragment {asked}), limit
-- Uses {name}_lease_idx.
select {row_key}, {id}
from {table}{by_lease}
where {dead} and {unleased}
  {in_scope}
  {asked}
order by {touched}, {number}
limit ?
for update skip locked
