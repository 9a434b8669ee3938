-- Gives three accounts what they need and nothing else; run it as an account with grant option on the outbox.
-- {producer}, {relay} and {operator} are the accounts, quoted
-- Changes nothing where it was run before.

-- The accounts must be there: create user {relay} identified by '…'; and so for the others.

-- The producer enqueues. It reads what tells it whether a dedupe key is there already, and no payload.
grant insert (id, namespace, topic, `key`, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts),
  select (seq, id, namespace, topic, dedupe_key) on {table} to {producer};
grant select, update on {turns} to {producer};
grant execute on procedure {enqueue} to {producer};

-- For dedupe keys, and the procedure: a key that is there already is passed over by setting seq to itself. MySQL wants
-- update (seq) for that; MariaDB wants it for every column that is inserted, so there a producer could change messages that
-- wait. Leave it out where no producer uses dedupe keys or the procedure, and take all but seq out of it on MySQL.
grant update (seq, id, namespace, topic, `key`, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts)
  on {table} to {producer};

-- The producer writes entries of the changelog, too, and reads them. It changes none. Leave this out where there is no changelog.
grant select, insert, update on {settings} to {producer};
grant select, insert on {changelog} to {producer};

-- The relay (postrider run) claims, settles and deletes what has been kept for long enough. It changes no message.
grant select, delete, update (status, attempts, next_attempt_at, locked_by, locked_until, last_error, updated_at, delivered_at)
  on {table} to {relay};
grant select on {migrations} to {relay};

-- It reads the changelog, and keeps how far its consumers have read.
grant select on {settings} to {relay};
grant select on {changelog} to {relay};
grant select, insert, update, delete on {cursors} to {relay};

-- The operator (status, dead, purge, doctor) looks at everything, replays and deletes, and leaves a line for what it does.
grant select, delete, update (status, attempts, next_attempt_at, locked_by, locked_until, last_error, updated_at, delivered_at, headers)
  on {table} to {operator};
grant select on {migrations} to {operator};
grant select on {turns} to {operator};
grant select, insert on {audit} to {operator};
grant select on {settings} to {operator};
grant select on {changelog} to {operator};
grant select, update, delete on {cursors} to {operator};

-- For the doctor to see the transactions of other accounts, if you want it to (it then sees their statements too):
-- grant process on *.* to {operator};
