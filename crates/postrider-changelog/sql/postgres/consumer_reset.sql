-- Moves a consumer to another place, and takes its lease away.
-- $1 versionstamp, $2 entry, $3 name
-- Uses the primary key.
update {cursors}
set versionstamp = $1::bytea, entry_id = $2::text::uuid, locked_by = null, locked_until = null, fence = fence + 1, last_error = null,
  failed_since = null, updated_at = clock_timestamp()
where name = $3::text
