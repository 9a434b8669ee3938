-- Zero if a row waits that says no time: it is due.
-- The scope
-- Uses the table's index on the status and the due time.
select timestampdiff(microsecond, {now}, {now}) as due_in
from {table}
where {pending} and {undated}
  {in_scope}
limit 1
