-- Gives the reader what it needs of a table of another layout and nothing else; run it as the table's owner.
-- {reader} is the role, quoted; {seen} are columns
-- Changes nothing where it was run before.

-- The reader (status, dead list, audit) looks at states, headers and errors. It reads no payload and changes nothing.
grant usage on schema {schema} to {reader};
grant select ({seen}) on {table} to {reader};
grant select on {migrations}, {audit} to {reader};
