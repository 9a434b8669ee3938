-- Which rows of a namespace may be claimed among those that have been due for longest: rows without a key, and the first that waits of each key. Most of the others may wait for these, so they are looked up by key: else a backlog of few keys would be read to its end for every claim.
-- Namespace, limit
-- Uses {name}_due_idx and {name}_key_idx. Locks nothing: claim_near.sql looks at them again.
select case when line.`key` is null then line.seq else (
    select mine.seq
    from {table} as mine force index ({name}_key_idx)
    where mine.status = 'pending' and mine.namespace = line.namespace and mine.`key` = line.`key`
    order by mine.seq
    limit 1) end as seq
from (
  select namespace, `key`, min(seq) as seq
  from (
    select namespace, `key`, seq
    from {table} force index ({name}_due_idx)
    where status = 'pending' and namespace = ? and next_attempt_at <= {now}
    order by next_attempt_at, seq
    limit ?) as front
  group by namespace, `key`, case when `key` is null then seq end) as line
