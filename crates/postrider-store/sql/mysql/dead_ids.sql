-- Those dead messages that are named, without their payloads; which namespaces are in scope is decided by the caller.
-- The rows' ids, tenant or null twice, the filter (see the fragment {asked})
-- Uses {name}_id_idx.
select {record}
from {table}{by_id}
where {raw_id} in ({items}) and {dead} and {of_tenant}
  {asked}
