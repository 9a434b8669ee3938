-- Takes the lease on a consumer, if nobody else has it.
-- Owner, length in µs, name
-- Uses the primary key.
update {cursors}
set locked_by = ?, locked_until = timestampadd(microsecond, ?, {now}), fence = fence + 1
where name = ? and (locked_until is null or locked_until <= {now})
