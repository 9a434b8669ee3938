-- Whether an event is in the inbox as one guard has entered it, known by how long it is kept: a row or none.
-- ?1 consumer, ?2 event, ?3 how long it is kept in µs
-- Uses the primary key.
select 1, 0
from {messages}
where consumer = ?1 and event_id = ?2 and expires_at - processed_at = ?3
