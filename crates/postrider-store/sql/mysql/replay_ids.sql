-- Locks those dead rows that are named; who is in scope is decided by the caller.
-- The rows' ids
-- Uses {name}_id_idx.
select seq, id, namespace, topic, tenant_id, coalesce({micros_of} updated_at), 0) as updated_at
from {table} force index ({name}_id_idx)
where id in ({items}) and status = 'dead'
for update skip locked
