-- Whether an event stood in the way of its insert: a row or none.
-- $1 consumer, $2 event
-- Uses the primary key.
select 1::bigint, 0::bigint
from {messages}
where consumer = $1::text and event_id = $2::uuid
