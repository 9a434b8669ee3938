-- Gives the reader what it needs of a table of another layout and nothing else; run it as an account with grant option on it.
-- {reader} is the account, quoted; {seen} are columns
-- Changes nothing where it was run before.

-- The reader (status, dead list, audit) looks at states, headers and errors. It reads no payload and changes nothing.
grant select ({seen}) on {table} to {reader};
grant select on {migrations} to {reader};
grant select on {audit} to {reader};
