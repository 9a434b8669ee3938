-- Whether an event is in the inbox as one guard has entered it, known by how long it is kept: a row or none.
-- $1 consumer, $2 event, $3 how long it is kept in µs
-- Uses the primary key.
select 1::bigint, 0::bigint
from {messages}
where consumer = $1::text and event_id = $2::uuid and expires_at - processed_at = $3::bigint * interval '1 microsecond'
