-- Begins a relay's transaction and says what time the last one saw.
-- no parameters
-- Takes the write lock at once: a transaction that reads first may find that it can no longer write.
begin immediate;
select seen from {clock}
