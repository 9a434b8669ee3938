-- Deletes leased rows that were delivered; a row with a dedupe key stays, because a producer's late retry must find it.
-- $1 addresses, $2 ids, $3 workers, $4 attempts, arrays
-- Finds rows by address, or by {name}_pkey when they moved.
delete from {table} as row
using unnest($1::text[]::tid[], $2::uuid[], $3::uuid[], $4::int[]) as given(address, id, worker, attempt)
where {found} and {fence} and {row.deletable}
returning {row.id}, given.attempt
