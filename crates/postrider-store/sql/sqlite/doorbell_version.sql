-- Which version of the file this connection sees.
-- no parameters
-- Leaves no transaction open.
pragma data_version
