-- Renews leases that are still ours.
-- $1 addresses, $2 ids, $3 workers, $4 attempts, arrays; $5 lease µs
-- Finds rows by address, or by {name}_pkey when they moved. Answers the rows' new addresses.
update {table} as row
set locked_until = now() + $5::bigint * interval '1 microsecond', updated_at = now()
from unnest($1::text[]::tid[], $2::uuid[], $3::uuid[], $4::int[]) as given(address, id, worker, attempt)
where {found} and {fence}
returning row.id, given.attempt, row.ctid::text as address
