-- A message in any state, with its payload.
-- $1 id
-- Uses {name}_pkey.
select {record}, {payload} as payload, {payload_bytes} as payload_bytes
from {table}
where {raw_id} = {raw $1::uuid}
