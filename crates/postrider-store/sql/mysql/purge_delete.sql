-- Deletes rows that this transaction has locked.
-- The rows' numbers
-- Uses the primary key.
delete from {table} where seq in ({items})
