-- Gives leased rows up.
-- Pairs of number and error, the rows' numbers, their ids, worker, attempt
-- Uses the primary key.
update {table}{by_number}
set {set_buried}
where {fence}
