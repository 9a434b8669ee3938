-- Reads rows that this transaction has locked, before it leases them.
-- The rows' numbers
-- Uses the primary key.
select seq, id, namespace, topic, `key`, tenant_id, dedupe_key, payload, payload_bytes, headers, attempts, max_attempts,
  {micros_of} created_at) as created_at, {micros_of} {now}) as claimed_at
from {table} force index (primary)
where seq in ({items})
