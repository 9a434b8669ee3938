-- Lets the producer write rows of a table of another layout; part of grants_layout.sql.
-- {producer} is the role, quoted; {inserted} and {found} are columns
-- Changes nothing where it was run before.

-- The producer enqueues. It reads what tells it whether a dedupe key is there already, and no payload.
grant usage on schema {schema} to {producer};
grant insert ({inserted}) on {table} to {producer};
grant select ({found}) on {table} to {producer};
