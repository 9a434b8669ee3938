-- Locks those dead messages that are named; which namespaces are in scope is decided by the caller.
-- The rows' ids, tenant or null twice, the filter (see the fragment {asked})
-- Uses {name}_id_idx.
select seq, id, namespace, coalesce({micros_of} updated_at), 0) as updated_at
from {table} force index ({name}_id_idx)
where id in ({items}) and status = 'dead' and {of_tenant}
  {asked}
for update skip locked
