-- Locks the dead messages that an operator changes, those that died first.
-- The scope, the filter (see the fragment {asked}), limit
-- Uses {name}_lease_idx.
select seq, id
from {table} force index ({name}_lease_idx)
where status = 'dead' and {unleased}
  {in_scope}
  {asked}
order by updated_at, seq
limit ?
for update skip locked
