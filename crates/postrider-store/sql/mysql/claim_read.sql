-- Reads rows that this transaction has locked, before it leases them.
-- The rows' numbers
-- Uses the primary key.
select {row_key}, {id}, {namespace}, {topic}, {key}, {tenant_id}, {dedupe_key}, {payload}, {payload_bytes}, {headers}, cast({attempts} as signed), cast({max_attempts} as signed),
  coalesce({micros_of} {created_at}), {micros_of} {now}), 0) as created_at, coalesce({micros_of} {now}), 0) as claimed_at{and_turn}
from {table}{by_number}
where {number} in ({items})
