-- The latest lines of the audit table, the newest first.
-- $1 limit
-- Uses the table's primary key.
select at, who, action, asked::text as asked, messages, ids::text as ids
from {audit}
order by seq desc
limit $1::bigint
