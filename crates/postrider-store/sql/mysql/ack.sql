-- Marks leased rows as delivered.
-- The rows' numbers, their ids, worker, attempt
-- Uses the primary key. A row is ours if its id is one of those given with this worker and attempt.
update {table} force index (primary)
set status = 'delivered', locked_by = null, locked_until = null, delivered_at = {now}, updated_at = {now}
where {fence}
