-- Which row is the newest, and which version of the file this connection sees; the version changes with every commit of another connection.
-- no parameters
-- Reads one row, and leaves no transaction open.
select max({number}) from {table};
pragma data_version
