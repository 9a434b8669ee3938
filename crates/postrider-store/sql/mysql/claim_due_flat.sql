-- Locks the rows that have been due for longest, of those that wait with one word, in a table that is not indexed by namespace.
-- Max attempts, the scope, limit
-- Uses the table's index on the status and the due time. One word for each statement, so that the index has the rows in order and no more are locked than the limit says.
select {row_key}, {size} as size, coalesce({micros_of} {due_at}), 0) as since
from {table}
where {waiting} and {due} and {may_try} and {raw_id} is not null
  {in_scope}
order by {due_at}, {number}
limit ?
for update skip locked
