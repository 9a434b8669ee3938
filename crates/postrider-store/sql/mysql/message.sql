-- A message in any state, with its payload.
-- Id
-- Uses {name}_id_idx.
select {record}, payload, payload_bytes
from {table} force index ({name}_id_idx)
where id = ?
