-- Lets the producer use dedupe keys in a table of another layout; part of grants_layout.sql.
-- {producer} is the account, quoted; {inserted} are columns
-- Changes nothing where it was run before.

-- For dedupe keys: one that is there already is passed over by setting the id to itself. MySQL wants an update of the id for that;
-- MariaDB wants it for every column that is inserted, so there a producer could change messages that wait. Leave it out where no
-- producer uses dedupe keys, and take all but the id out of it on MySQL.
grant update ({inserted}) on {table} to {producer};
grant select, update on {turns} to {producer};
grant select on {turns} to {operator};
