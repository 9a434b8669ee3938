-- The latest lines of the audit table before one of them, the newest first.
-- ?1 the number that they come before, ?2 limit
-- Uses the table's primary key.
select at, who, action, asked, messages, ids, seq
from {audit}
where seq < ?1
order by seq desc
limit ?2
