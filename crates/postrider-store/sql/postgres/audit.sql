-- The latest lines of the audit table before one of them, the newest first.
-- $1 the number that they come before, $2 limit
-- Uses the table's primary key.
select at, who, action, asked::text as asked, messages, ids::text as ids, seq
from {audit}
where seq < $1::bigint
order by seq desc
limit $2::bigint
