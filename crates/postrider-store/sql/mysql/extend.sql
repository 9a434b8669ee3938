-- Renews leases that are still ours.
-- Lease µs, the rows' numbers, their ids, worker, attempt
-- Uses the primary key.
update {table} force index (primary)
set locked_until = timestampadd(microsecond, ?, {now}), updated_at = {now}
where {fence}
