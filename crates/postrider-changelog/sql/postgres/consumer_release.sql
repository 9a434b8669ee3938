-- Gives a consumer's lease back.
-- $1 name, $2 owner, $3 fence
-- Uses the primary key.
update {cursors}
set locked_by = null, locked_until = null
where name = $1::text and locked_by = $2::text::uuid and fence = $3::bigint
