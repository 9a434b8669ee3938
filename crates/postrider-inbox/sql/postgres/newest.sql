-- The newest attempt of an event that was seen: how often it was replayed, and the attempt's number.
-- $1 consumer, $2 event
-- Uses the primary key.
select replayed, attempt
from {attempts}
where consumer = $1::text and event_id = $2::uuid
