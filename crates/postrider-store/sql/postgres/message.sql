-- A message in any state, with its payload.
-- $1 id
-- Uses {name}_pkey.
select {record}, payload::text as payload, payload_bytes
from {table}
where id = $1::uuid
