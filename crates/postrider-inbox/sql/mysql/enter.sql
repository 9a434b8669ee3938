-- Enters an event in the consumer's transaction: done is first, a duplicate key is already processed, and a lock that is not had is being handled by another transaction.
-- Consumer, event, how long to keep it in µs
-- Uses the primary key. An error undoes the statement only. MariaDB reads what MySQL takes for a comment.
{held}insert into {messages} (consumer, event_id, expires_at)
values (?, ?, timestampadd(microsecond, ?, utc_timestamp(6)))
