-- Takes the lease on a consumer, if nobody else has it.
-- $1 owner, $2 length in µs, $3 name
-- Uses the primary key.
update {cursors}
set locked_by = $1::text::uuid, locked_until = clock_timestamp() + $2::bigint * interval '1 microsecond', fence = fence + 1
where name = $3::text and (locked_until is null or locked_until <= clock_timestamp())
