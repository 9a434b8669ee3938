-- Renews a consumer's lease.
-- Length in µs, name, owner, fence
-- Uses the primary key.
update {cursors}
set locked_until = timestampadd(microsecond, ?, {now})
where name = ? and locked_by = ? and fence = ?
