-- Renews leases that are still ours.
-- $1 addresses, $2 ids, $3 workers, $4 attempts, arrays; $5 lease µs
-- Finds rows by address, or by {name}_pkey when they moved. Answers the rows' new addresses.
update {table} as row
set {set_renewed}
from unnest($1::text[]::tid[], $2::uuid[], $3::uuid[], $4::int[]) as given(address, id, worker, attempt)
where {found} and {fence} and $5::bigint is not null
returning {row.id}, given.attempt, {row.address} as address
