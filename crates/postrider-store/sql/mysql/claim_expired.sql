-- Locks rows whose lease ran out, unless a worker died on them repeatedly or their attempts are spent.
-- Max attempts twice, the scope, limit
-- Uses {name}_lease_idx, with order per key {name}_key_idx.
select seq, {size} as size, coalesce({micros_of} locked_until), 0) as since
from {table}{as_mine} force index ({name}_lease_idx)
where status = 'processing' and locked_until < {now}
  and attempts < coalesce(max_attempts, ?) and not {suspect}{and_in_turn}
  {in_scope}
order by locked_until, updated_at, seq
limit ?
for update skip locked
