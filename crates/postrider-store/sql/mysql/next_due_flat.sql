-- How long until the first pending row is due, µs, in a table that is not indexed by namespace.
-- The scope
-- Uses the table's index on the status and the due time.
select timestampdiff(microsecond, {now}, min({due_at})) as due_in
from {table}
where {pending}
  {in_scope}
