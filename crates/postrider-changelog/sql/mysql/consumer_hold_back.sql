-- Notes why a consumer does not get on, and renews its lease.
-- Why, length in µs, name, owner, fence
-- Uses the primary key.
update {cursors}
set last_error = ?, failed_since = coalesce(failed_since, {now}), locked_until = timestampadd(microsecond, ?, {now})
where name = ? and locked_by = ? and fence = ?
