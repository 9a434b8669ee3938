-- Renews a consumer's lease.
-- $1 length in µs, $2 name, $3 owner, $4 fence
-- Uses the primary key.
update {cursors}
set locked_until = clock_timestamp() + $1::bigint * interval '1 microsecond'
where name = $2::text and locked_by = $3::text::uuid and fence = $4::bigint
