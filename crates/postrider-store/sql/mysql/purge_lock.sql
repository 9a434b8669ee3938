-- Becomes the one that purges, without waiting; 1 if it did.
-- Nothing
-- Session level: given back on the same connection.
select get_lock({purge_lock}, 0)
