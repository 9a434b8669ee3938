-- Gives three accounts what they need and nothing else; run it as an account with grant option on the outbox.
-- {producer}, {relay} and {operator} are the accounts, quoted
-- Changes nothing where it was run before.

-- The producer enqueues. It reads what tells it whether a dedupe key is there already, and no payload. A key that is there
-- is passed over by setting seq to itself, so it needs that too.
grant insert (id, namespace, topic, `key`, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts),
  select (seq, id, namespace, topic, dedupe_key), update (seq) on {table} to {producer};
grant select, update on {turns} to {producer};
grant execute on procedure {enqueue} to {producer};

-- The relay (postrider run) claims, settles and deletes what has been kept for long enough. It changes no message.
grant select, delete, update (status, attempts, next_attempt_at, locked_by, locked_until, last_error, updated_at, delivered_at)
  on {table} to {relay};
grant select on {migrations} to {relay};

-- The operator (status, dead, purge, doctor) looks at everything, replays and deletes, and leaves a line for what it does.
grant select, delete, update (status, attempts, next_attempt_at, locked_by, locked_until, last_error, updated_at, delivered_at, headers)
  on {table} to {operator};
grant select on {migrations} to {operator};
grant select on {turns} to {operator};
grant select, insert on {audit} to {operator};

-- For the doctor to see the transactions of other accounts, if you want it to (it then sees their statements too):
-- grant process on *.* to {operator};
