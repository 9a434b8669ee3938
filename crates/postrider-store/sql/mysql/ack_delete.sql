-- Deletes leased rows that were delivered; a row with a dedupe key stays, because a producer's late retry must find it.
-- The rows' numbers, their ids, worker, attempt
-- Uses the primary key, one look for each number. With `where … in (…)` a small table would be read as a whole, whatever index is named, up to a row that a producer has not committed. Without an alias, because that would need a selected database.
delete from {table}
using (select {numbers}) as wanted
straight_join {table}{by_number} on {table}.{number} = wanted.number
where {ours} and {dedupe_key} is null
