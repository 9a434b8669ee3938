-- Which rows of a namespace may be claimed among those that have been due for longest: rows without a key, and the first that waits of each line (namespace, tenant, key). Most of the others may wait for these, so they are looked up by line: else a backlog of few keys would be read to its end for every claim.
-- Namespace, tenant or null twice, limit
-- Uses {name}_due_idx and {name}_key_idx. Locks nothing: claim_near.sql looks at them again. Answers also how many rows stand in each line, and how many of them wait for one that is under way.
select case when line.`key` is null then line.seq else (
    select mine.seq
    from {table} as mine force index ({name}_key_idx)
    where mine.status = 'pending' and mine.namespace = line.namespace and mine.`key` = line.`key` and mine.tenant_id <=> line.tenant_id
    order by mine.seq
    limit 1) end as seq,
  line.held * exists (
    select 1
    from {table} as busy force index ({name}_key_idx)
    where busy.status = 'processing' and busy.locked_until > {now} and busy.namespace = line.namespace and busy.`key` = line.`key` and busy.tenant_id <=> line.tenant_id) as moving,
  line.held
from (
  select namespace, `key`, tenant_id, min(seq) as seq, count(*) as held
  from (
    select namespace, `key`, tenant_id, seq
    from {table} force index ({name}_due_idx)
    where status = 'pending' and namespace = ? and next_attempt_at <= {now} and {of_tenant}
    order by next_attempt_at, seq
    limit ?) as front
  group by namespace, `key`, tenant_id, case when `key` is null then seq end) as line
