-- Says how far a consumer has read, and renews its lease.
-- $1 versionstamp, $2 entry, $3 length in µs, $4 name, $5 owner, $6 fence
-- Uses the primary key.
update {cursors}
set versionstamp = $1::bytea, entry_id = $2::text::uuid, locked_until = clock_timestamp() + $3::bigint * interval '1 microsecond', last_error = null, failed_since = null,
  updated_at = clock_timestamp()
where name = $4::text and locked_by = $5::text::uuid and fence = $6::bigint
