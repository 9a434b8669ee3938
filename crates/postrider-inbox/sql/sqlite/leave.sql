-- Takes back what this transaction has entered.
-- ?1 consumer, ?2 event
-- Uses the primary key.
delete from {messages}
where consumer = ?1 and event_id = ?2
