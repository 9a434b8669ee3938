-- Notes why a consumer does not get on, and renews its lease.
-- ?1 why, ?2 length in µs, ?3 name, ?4 owner, ?5 fence
-- Uses the primary key.
update {cursors}
set last_error = ?1, failed_since = coalesce(failed_since, {now}), locked_until = {now} + ?2
where name = ?3 and locked_by = ?4 and fence = ?5
