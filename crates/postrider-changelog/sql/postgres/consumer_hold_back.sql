-- Notes why a consumer does not get on, and renews its lease.
-- $1 why, $2 length in µs, $3 name, $4 owner, $5 fence
-- Uses the primary key.
update {cursors}
set last_error = $1::text, failed_since = coalesce(failed_since, clock_timestamp()), locked_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
where name = $3::text and locked_by = $4::text::uuid and fence = $5::bigint
