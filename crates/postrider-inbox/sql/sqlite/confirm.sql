-- Whether an event stood in the way of its insert: a row or none.
-- ?1 consumer, ?2 event
-- Uses the primary key.
select 1, 0
from {messages}
where consumer = ?1 and event_id = ?2
