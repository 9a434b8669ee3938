-- Says how far a consumer has read, and renews its lease.
-- Versionstamp, entry, length in µs, name, owner, fence
-- Uses the primary key.
update {cursors}
set versionstamp = ?, entry_id = ?, locked_until = timestampadd(microsecond, ?, {now}), last_error = null, failed_since = null,
  updated_at = {now}
where name = ? and locked_by = ? and fence = ?
