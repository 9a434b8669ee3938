-- Deletes rows that this transaction has locked.
-- The rows' numbers
-- Uses the primary key, one look for each number, see ack_delete.sql.
delete finished
from (select {numbers}) as wanted
straight_join {table} as finished force index (primary) on finished.seq = wanted.number
