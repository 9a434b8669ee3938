-- Gives claims back with their attempt; without a delay the row is due as it was before.
-- Pairs of number and error or null, pairs of number and delay µs or null, the rows' numbers, their ids, worker, attempt
-- Uses the primary key.
update {table}{by_number}
set {set_released}
where {fence}
