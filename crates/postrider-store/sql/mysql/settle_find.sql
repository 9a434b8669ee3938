-- Locks leased rows by their ids and says whose they are, when not all of them were found where they should be.
-- The rows' ids
-- Uses {name}_id_idx.
select seq, id, locked_by, attempts
from {table} force index ({name}_id_idx)
where id in ({items}) and status = 'processing'
for update
