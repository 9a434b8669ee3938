-- Forgets a consumer.
-- ?1 name
-- Uses the primary key.
delete from {cursors}
where name = ?1
