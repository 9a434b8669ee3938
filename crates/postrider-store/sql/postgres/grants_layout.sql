-- Gives three roles what they need of a table of another layout and nothing else; run it as the table's owner.
-- {producer}, {relay} and {operator} are the roles, quoted; {inserted}, {found}, {changed} and {replayed} are columns
-- Changes nothing where it was run before.

-- The roles must be there: create role {relay} login password '…'; and so for the others. What others may do with the table stays
-- as it is. Run postrider migrate first: it makes the tables of versions and of what operators do.
revoke all on {migrations}, {audit} from public;

{of_producer}

-- The relay (postrider run) claims, settles and deletes what has been kept for long enough. It changes no message.
grant usage on schema {schema} to {relay};
grant select, delete on {table} to {relay};
grant update ({changed}) on {table} to {relay};
grant select on {migrations} to {relay};

-- The operator (status, dead, purge, doctor) looks at everything, replays and deletes, and leaves a line for what it does.
grant usage on schema {schema} to {operator};
grant select, delete on {table} to {operator};
grant update ({replayed}) on {table} to {operator};
grant select on {migrations} to {operator};
grant select, insert on {audit} to {operator};

-- For the doctor to see the transactions of other roles, if you want it to (it then could read their statements too):
-- grant pg_read_all_stats to {operator};
