-- Gives a consumer's lease back.
-- ?1 name, ?2 owner, ?3 fence
-- Uses the primary key.
update {cursors}
set locked_by = null, locked_until = null
where name = ?1 and locked_by = ?2 and fence = ?3
