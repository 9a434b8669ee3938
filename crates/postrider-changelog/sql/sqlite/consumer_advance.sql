-- Says how far a consumer has read, and renews its lease.
-- ?1 versionstamp, ?2 entry, ?3 length in µs, ?4 name, ?5 owner, ?6 fence
-- Uses the primary key.
update {cursors}
set versionstamp = ?1, entry_id = ?2, locked_until = {now} + ?3, last_error = null, failed_since = null,
  updated_at = {now}
where name = ?4 and locked_by = ?5 and fence = ?6
