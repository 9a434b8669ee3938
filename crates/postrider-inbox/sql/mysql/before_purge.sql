-- Lets the next transaction lock rows only, and not what is between them, so that a purge keeps nobody from entering.
-- No parameters
-- Uses no table.
set transaction isolation level read committed
