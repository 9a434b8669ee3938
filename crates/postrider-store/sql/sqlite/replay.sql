-- Puts dead messages that dead_pick.sql found back to pending with all their attempts.
-- ?1 the rows' numbers (a JSON array), ?2 now
-- Finds rows by their numbers.
update {table}
set status = 'pending', attempts = 0, next_attempt_at = ?2, locked_by = null, locked_until = null, updated_at = ?2,
    headers = json_set(headers, '$."{replayed}"', cast({times_replayed} + 1 as text))
where seq in (select value from json_each(?1)) and +status = 'dead'
