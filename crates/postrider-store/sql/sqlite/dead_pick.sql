-- The numbers and ids of the dead messages that an operator changes, those that died first.
-- ?1 to ?8 the filter, see the fragment {asked}, ?9 limit
-- Uses {name}_dead_idx.
select {number}, {id}
from {table}
where {asked}
order by {touched}, {id}
limit ?9
