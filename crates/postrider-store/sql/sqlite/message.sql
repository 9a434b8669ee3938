-- A message in any state, with its payload.
-- ?1 id
-- Uses {name}_id_idx.
select {record}, {payload}, {payload_bytes}
from {table}
where {raw_id} = {raw ?1}
