-- A message in any state, with its payload.
-- Id
-- Uses {name}_id_idx.
select {record}, {payload}, {payload_bytes}
from {table}{by_id}
where {raw_id} = {raw ?}
