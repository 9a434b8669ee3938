-- Lets the producer use the changelog; part of grants.sql.
-- {producer} is the role, quoted
-- Changes nothing where it was run before.

-- The producer writes entries of the changelog, too, and reads them. It changes none. Leave this out where there is no changelog.
grant select, insert, update on {settings} to {producer};
grant select, insert on {changelog} to {producer};
