-- The newest attempt of an event that was seen: how often it was replayed, and the attempt's number.
-- Consumer, event
-- Uses the primary key.
select replayed, attempt
from {attempts}
where consumer = ? and event_id = ?
