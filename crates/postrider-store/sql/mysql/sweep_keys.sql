-- Finds the first rows of the lines (namespace, tenant, key) that the oldest due rows of a namespace have, if their allowance was lowered below the attempts they had, and null for the others: with order per key those behind wait for them, and would hide them from sweep_spent.sql.
-- Max attempts, tenant or null twice, namespace, tenant or null twice
-- Uses {name}_due_idx and {name}_key_idx. Locks nothing: sweep_lock.sql looks at them again.
select (
  select case when mine.attempts >= coalesce(mine.max_attempts, ?) and {of_tenant} and mine.next_attempt_at <= {now} then mine.seq end
  from {table} as mine force index ({name}_key_idx)
  where mine.status = 'pending' and mine.namespace = line.namespace and mine.`key` = line.`key` and mine.tenant_id <=> line.tenant_id
  order by mine.seq
  limit 1) as seq
from (
  select distinct namespace, `key`, tenant_id
  from (
    select namespace, `key`, tenant_id
    from {table} force index ({name}_due_idx)
    where status = 'pending' and namespace = ? and next_attempt_at <= {now} and {of_tenant}
    order by next_attempt_at, seq
    limit {largest_claim}) as head
  where `key` is not null) as line
