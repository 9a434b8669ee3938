-- The latest lines of the audit table before one of them, the newest first.
-- The number that they come before, limit
-- Uses the primary key.
select coalesce({micros_of} at), 0) as at, who, action, asked, messages, ids, seq
from {audit}
where seq < ?
order by seq desc
limit ?
