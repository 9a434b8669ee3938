-- Leases rows that this transaction has locked.
-- Worker, lease µs, the rows' numbers
-- Uses the primary key.
update {table} force index (primary)
set status = 'processing', attempts = attempts + 1, locked_by = ?,
    locked_until = timestampadd(microsecond, ?, {now}), updated_at = {now}
where seq in ({items})
