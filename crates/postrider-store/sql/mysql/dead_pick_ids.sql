-- Locks those dead messages that are named; which namespaces are in scope is decided by the caller.
-- The rows' ids, tenant or null twice, the filter (see the fragment {asked})
-- Uses {name}_id_idx.
select {row_key}, {id}, {namespace}, coalesce({micros_of} {touched}), 0) as died_at
from {table}{by_id}
where {raw_id} in ({items}) and {dead} and {of_tenant}
  {asked}
for update skip locked
