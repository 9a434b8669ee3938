-- Gives a consumer's lease back.
-- Name, owner, fence
-- Uses the primary key.
update {cursors}
set locked_by = null, locked_until = null
where name = ? and locked_by = ? and fence = ?
