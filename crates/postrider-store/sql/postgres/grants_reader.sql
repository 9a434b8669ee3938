-- Gives the reader what it needs and nothing else; run it as the owner of the outbox.
-- {reader} is the role, quoted
-- Changes nothing where it was run before.

-- The reader (status, dead list, audit) looks at states, headers and errors. It reads no payload and changes nothing.
grant usage on schema {schema} to {reader};
grant select (id, seq, namespace, topic, key, tenant_id, dedupe_key, headers, status, attempts, max_attempts,
    next_attempt_at, locked_by, locked_until, last_error, created_at, updated_at, delivered_at)
  on {table} to {reader};
grant select on {migrations}, {audit} to {reader};
