-- Locks dead rows, oldest first.
-- The scope, topic or null twice, limit
-- Uses {name}_lease_idx.
select seq, id
from {table} force index ({name}_lease_idx)
where status = 'dead' and {unleased}
  {in_scope}
  and (? is null or topic = ?)
order by updated_at, seq
limit ?
for update skip locked
