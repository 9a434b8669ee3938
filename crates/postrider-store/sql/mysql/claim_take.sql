-- Leases rows that this transaction has locked.
-- Worker, lease µs, the rows' numbers
-- Uses the primary key.
update {table}{by_number}
set {set_taken}
where {number} in ({items})
