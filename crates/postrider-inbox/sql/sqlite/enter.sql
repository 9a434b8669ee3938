-- Enters an event in the consumer's transaction: a row is first, none is not written, because of a row that is there or of a trigger, and a database that is busy is being handled by another transaction.
-- ?1 consumer, ?2 event, ?3 how long to keep it in µs
-- Uses the primary key.
insert into {messages} (consumer, event_id, expires_at)
values (?1, ?2, {now} + ?3)
on conflict (consumer, event_id) do nothing
returning 1, 0
