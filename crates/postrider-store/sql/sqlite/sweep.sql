-- Buries the rows that sweep_look.sql found, where they are still as they were.
-- ?1 now, ?2 max attempts, ?3 the rows' numbers (a JSON array)
-- Finds rows by their numbers.
update {table}
set status = 'dead', locked_by = null, locked_until = null, updated_at = ?1,
    last_error = case when status = 'pending' then coalesce(last_error || ' ', '') || '(given up: all ' || attempts || ' attempts are spent)'
      else 'delivery unknown: the worker of the last allowed attempt (' || attempts || ') stopped before it said how the attempt ended' end
where seq in (select value from json_each(?3))
  and (status = 'processing' and locked_until < ?1 or status = 'pending' and next_attempt_at <= ?1)
  and attempts >= coalesce(max_attempts, ?2)
returning id
