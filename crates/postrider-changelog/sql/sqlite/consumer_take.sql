-- Takes the lease on a consumer, if nobody else has it.
-- ?1 owner, ?2 length in µs, ?3 name
-- Uses the primary key.
update {cursors}
set locked_by = ?1, locked_until = {now} + ?2, fence = fence + 1
where name = ?3 and (locked_until is null or locked_until <= {now})
