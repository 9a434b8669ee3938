-- Renews a consumer's lease.
-- ?1 length in µs, ?2 name, ?3 owner, ?4 fence
-- Uses the primary key.
update {cursors}
set locked_until = {now} + ?1
where name = ?2 and locked_by = ?3 and fence = ?4
