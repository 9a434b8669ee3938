-- Whether an event is in the inbox as one guard has entered it, known by how long it is kept: a row or none.
-- Consumer, event, how long it is kept in µs
-- Uses the primary key.
select cast(1 as signed), cast(0 as signed)
from {messages}
where consumer = ? and event_id = ? and timestampdiff(microsecond, processed_at, expires_at) = ?
