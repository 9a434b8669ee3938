-- Puts leased rows back for a later attempt.
-- Pairs of number and error, pairs of number and delay µs, the rows' numbers, their ids, worker, attempt
-- Uses the primary key.
update {table}{by_number}
set {set_nacked}
where {fence}
