-- Gives three roles what they need and nothing else; run it as the owner of the outbox.
-- {producer}, {relay} and {operator} are the roles, quoted
-- Changes nothing where it was run before.

-- The roles must be there: create role {relay} login password '…'; and so for the others.

-- Nobody gets in by being anybody.
revoke all on {table}, {migrations}, {audit}, {settings}, {changelog}, {cursors} from public;
revoke all on function {uuid_v7}() from public;
revoke all on function {enqueue}(text, text, jsonb, text, uuid, text, jsonb, timestamptz, int, bytea, text) from public;

-- The producer enqueues. It reads what tells it whether a dedupe key is there already, and no payload.
grant usage on schema {schema} to {producer};
grant insert (id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts)
  on {table} to {producer};
grant select (id, namespace, topic, dedupe_key) on {table} to {producer};
grant execute on function {uuid_v7}() to {producer};
grant execute on function {enqueue}(text, text, jsonb, text, uuid, text, jsonb, timestamptz, int, bytea, text) to {producer};

{changelog_of_producer}

-- The relay (postrider run) claims, settles and deletes what has been kept for long enough. It changes no message.
grant usage on schema {schema} to {relay};
grant select, delete on {table} to {relay};
grant update (status, attempts, next_attempt_at, locked_by, locked_until, last_error, updated_at, delivered_at)
  on {table} to {relay};
grant select on {migrations} to {relay};

-- It reads the changelog, and keeps how far its consumers have read.
grant select on {settings}, {changelog} to {relay};
grant select, insert, update, delete on {cursors} to {relay};

-- The operator (status, dead, purge, doctor) looks at everything, replays and deletes, and leaves a line for what it does.
grant usage on schema {schema} to {operator};
grant select, delete on {table} to {operator};
grant update (status, attempts, next_attempt_at, locked_by, locked_until, last_error, updated_at, delivered_at, headers)
  on {table} to {operator};
grant select on {migrations} to {operator};
grant select, insert on {audit} to {operator};
grant select on {settings}, {changelog} to {operator};
grant select, update, delete on {cursors} to {operator};

-- For the doctor to see the transactions of other roles, if you want it to (it then could read their statements too):
-- grant pg_read_all_stats to {operator};
