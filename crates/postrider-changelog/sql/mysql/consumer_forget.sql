-- Forgets a consumer.
-- Name
-- Uses the primary key.
delete from {cursors}
where name = ?
