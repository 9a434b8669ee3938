-- Locks dead rows, oldest first.
-- The scope, topic or null twice, limit
-- Uses {name}_finished_idx.
select seq, id
from {table} force index ({name}_finished_idx)
where status = 'dead'
  {in_scope}
  and (? is null or topic = ?)
order by updated_at, seq
limit ?
for update skip locked
