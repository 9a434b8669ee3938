-- Moves a consumer to another place, and takes its lease away.
-- Versionstamp, entry, name
-- Uses the primary key.
update {cursors}
set versionstamp = ?, entry_id = ?, locked_by = null, locked_until = null, fence = fence + 1, last_error = null, failed_since = null,
  updated_at = {now}
where name = ?
