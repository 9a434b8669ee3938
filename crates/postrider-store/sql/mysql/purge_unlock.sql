-- Lets others purge.
-- Nothing
-- Session level: on the connection that has the lock.
select release_lock({purge_lock})
