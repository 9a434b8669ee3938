-- Enters an event in the consumer's transaction: 1 first, 2 already processed, 3 being handled by another transaction, 4 not written, because of a row that this statement does not see or of a trigger.
-- $1 consumer, $2 event, $3 how long to keep it in µs
-- Uses the primary key. The insert waits for a writer that has not taken the lock, whatever language it is in.
with held as materialized (
  select {held} as ours
),
entered as (
  insert into {messages} (consumer, event_id, expires_at)
  select $1::text, $2::uuid, now() + $3::bigint * interval '1 microsecond'
  from held
  where ours
  on conflict (consumer, event_id) do nothing
  returning 1
)
select
  case
    when exists (select from entered) then 1::bigint
    when exists (select from {messages} where consumer = $1::text and event_id = $2::uuid) then 2::bigint
    when ours then 4::bigint
    else 3::bigint
  end,
  0::bigint
from held
