-- Deletes leased rows that were delivered; a row with a dedupe key stays, because a producer's late retry must find it.
-- The rows' numbers, their ids, worker, attempt
-- Uses the primary key.
delete from {table}
where {fence} and dedupe_key is null
