-- The latest lines of the audit table, the newest first.
-- Limit
-- Uses the primary key.
select coalesce({micros_of} at), 0) as at, who, action, asked, messages, ids
from {audit}
order by seq desc
limit ?
