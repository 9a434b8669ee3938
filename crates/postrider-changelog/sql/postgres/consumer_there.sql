-- Whether there is a consumer: none, or one row that says whether its lease is free or held.
-- $1 name
-- Uses the primary key.
select case when locked_until is null or locked_until <= clock_timestamp() then 'free' else 'held' end
from {cursors}
where name = $1::text
