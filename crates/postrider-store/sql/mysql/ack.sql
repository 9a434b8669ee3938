-- Marks leased rows as delivered.
-- The rows' numbers, their ids, worker, attempt
-- Uses the primary key. A row is ours if its id is one of those given with this worker and attempt.
update {table}{by_number}
set {set_acked}
where {fence}
