-- The latest lines of the audit table, the newest first.
-- ?1 limit
-- Uses the table's primary key.
select at, who, action, asked, messages, ids
from {audit}
order by seq desc
limit ?1
