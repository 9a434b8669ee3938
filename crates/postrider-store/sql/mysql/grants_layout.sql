-- Gives three accounts what they need of a table of another layout and nothing else; run it as an account with grant option on it.
-- {producer}, {relay} and {operator} are the accounts, quoted; {inserted}, {found}, {changed} and {replayed} are columns
-- Changes nothing where it was run before.

-- The accounts must be there: create user {relay} identified by '…'; and so for the others. Run postrider migrate first: it makes
-- the tables of versions and of what operators do.

-- The producer enqueues. It reads what tells it whether a dedupe key is there already, and no payload.
grant insert ({inserted}), select ({found}) on {table} to {producer};
{of_keys}

-- The relay (postrider run) claims, settles and deletes what has been kept for long enough. It changes no message.
grant select, delete, update ({changed}) on {table} to {relay};
grant select on {migrations} to {relay};

-- The operator (status, dead, purge, doctor) looks at everything, replays and deletes, and leaves a line for what it does.
grant select, delete, update ({replayed}) on {table} to {operator};
grant select on {migrations} to {operator};
grant select, insert on {audit} to {operator};

-- For the doctor to see the transactions of other accounts, if you want it to (it then sees their statements too):
-- grant process on *.* to {operator};
