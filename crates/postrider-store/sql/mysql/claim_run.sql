-- What comes after a row that is the first of its line, in order, and whether it may be taken.
-- Max attempts, tenant or null twice, max attempts, then twice namespace, key, tenant or null, number and limit, and the limit again
-- Uses {name}_key_idx, a part of it for each status. Locks nothing: claim_follow.sql looks at them again.
select seq, size,
  coalesce(attempts < coalesce(max_attempts, ?) and {of_tenant}
    and (status = 'pending' and next_attempt_at <= {now} or status = 'processing' and locked_until < {now} and not {suspect}), 0) as may
from (
  (select {line} from {table} force index ({name}_key_idx)
   where status = 'pending' and namespace = ? and `key` = ? and tenant_id <=> ? and seq > ?
   order by seq limit ?)
  union all
  (select {line} from {table} force index ({name}_key_idx)
   where status = 'processing' and namespace = ? and `key` = ? and tenant_id <=> ? and seq > ?
   order by seq limit ?)) as line
order by seq
limit ?
