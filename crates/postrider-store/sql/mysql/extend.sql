-- Renews leases that are still ours.
-- Lease µs, the rows' numbers, their ids, worker, attempt
-- Uses the primary key.
update {table}{by_number}
set {set_renewed}
where {fence}
