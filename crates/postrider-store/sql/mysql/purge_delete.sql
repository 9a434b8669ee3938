-- Deletes rows that this transaction has locked.
-- The rows' numbers
-- Uses the primary key, one look for each number, see ack_delete.sql.
delete from {table}
using (select {numbers}) as wanted
straight_join {table}{by_number} on {table}.{number} = wanted.number
