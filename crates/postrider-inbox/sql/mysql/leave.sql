-- Takes back what this transaction has entered.
-- Consumer, event
-- Uses the primary key.
delete from {messages}
where consumer = ? and event_id = ?
