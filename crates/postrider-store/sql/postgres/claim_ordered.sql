-- Takes eligible rows under a lease with order per key: as claim.sql does, but of each key only the first that is not finished, and then what comes after it while there is room.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes
-- Uses {name}_lease_idx, {name}_due_idx and {name}_key_idx, then the rows' addresses.
with recursive expired as materialized (
  select ctid, {size} as size, locked_until, seq, namespace, key
  from {table} as mine
  where status = 'processing' and locked_until < now()
    and attempts < coalesce(max_attempts, $3::int) and not {suspect}
    and {in_scope} and {in_turn}
  order by locked_until
  limit $4::bigint
  for update skip locked
),
{namespaces},
share as materialized (
  select array_agg(namespace) as namespaces, ceil(($4::bigint - (select count(*) from expired))::numeric / nullif(count(*), 0))::bigint as size
  from (
    select namespace from namespaces where due_at <= now()
    union all
    select name from unnest($1::text[]) as name, lateral (
      select from {table} where status = 'pending' and namespace = name and next_attempt_at <= now()
      order by next_attempt_at limit 1) as any_due) as wanted(namespace)
),
-- Keys that many of the longest due rows have: their first rows are looked for directly, so that the search below need not ask of each row behind them what it waits for.
hot as materialized (
  select front.namespace, front.key
  from share, unnest(share.namespaces) with ordinality as wanted(namespace, few), lateral (
    select namespace, key from {table}
    where status = 'pending' and namespace = wanted.namespace and next_attempt_at <= now()
    order by next_attempt_at, seq
    limit {largest_claim}) as front
  where wanted.few between 0 and 2147483647 and front.key is not null
  group by front.namespace, front.key
  having count(*) >= 16
  order by count(*) desc
  limit 32
),
first as materialized (
  select line.ctid, line.few
  from hot, lateral (
    select ctid, attempts as few from {table} as row
    where row.namespace = hot.namespace and row.key = hot.key and row.status in ('pending', 'processing')
    order by row.seq
    limit 1) as line
),
hot_due as materialized (
  select row.ctid, {size_of_row} as size, row.next_attempt_at, row.seq, row.namespace, row.key
  from first as picked join {table} as row on row.ctid = picked.ctid
  where {few} and (row.status = 'pending') is true and row.next_attempt_at <= now()
    and row.attempts < coalesce(row.max_attempts, $3::int)
    and ($2::uuid is null or row.tenant_id = $2::uuid)
  for update of row skip locked
),
due as materialized (
  select row.*
  from share, unnest(share.namespaces) with ordinality as wanted(namespace, few),
    lateral (select coalesce(array_agg(hot.key), '{}') as keys from hot where hot.namespace = wanted.namespace) as busy, lateral (
    select * from (
      select ctid, {size} as size, next_attempt_at, seq, namespace, key
      from {table} as mine
      where status = 'pending' and namespace = wanted.namespace and next_attempt_at <= now()
        and attempts < coalesce(max_attempts, $3::int)
        and ($2::uuid is null or tenant_id = $2::uuid)
        and (mine.key is null or mine.key <> all (busy.keys)) and {in_turn}
      order by next_attempt_at, seq
      limit {largest_claim}
      for update skip locked) as head
    limit share.size) as row
  where wanted.few between 0 and 2147483647
),
heads as materialized (
  select * from (
    select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before
    from (
      select 1 as turn, ctid, size, locked_until as since, seq, namespace, key from expired
      union all
      select 2, ctid, size, next_attempt_at, seq, namespace, key from due
      union all
      select 2, ctid, size, next_attempt_at, seq, namespace, key from hot_due) as candidates) as counted
  where before < $7::bigint
  order by turn, since, seq
  limit $4::bigint
),
-- What comes after them, up to the first that may not be taken.
runs as materialized (
  select run.*, head.seq as head
  from heads as head, lateral (
    select ctid, place, few, bool_and(may) over (order by place) as ready
    from (
      select ctid, row_number() over (order by seq) as place, attempts as few,
             attempts < coalesce(max_attempts, $3::int) and ($2::uuid is null or tenant_id = $2::uuid)
             and (status = 'pending' and next_attempt_at <= now() or status = 'processing' and locked_until < now() and not {suspect}) as may
      from (
        select ctid, seq, status, attempts, max_attempts, tenant_id, next_attempt_at, locked_until
        from {table} as follower
        where follower.namespace = head.namespace and follower.key = head.key and follower.seq > head.seq
          and follower.status in ('pending', 'processing')
        order by follower.seq
        limit {longest_run} - 1) as line) as looked_at) as run
  where run.ready and (select count(*) from heads) < $4::bigint
),
-- One that somebody else has locked ends its run.
locked as materialized (
  select row.ctid, {size_of_row} as size, picked.head, picked.place
  from runs as picked join {table} as row on row.ctid = picked.ctid
  where {few} and row.attempts < coalesce(row.max_attempts, $3::int)
    and (row.status = 'pending' and row.next_attempt_at <= now() or row.status = 'processing' and row.locked_until < now())
  for update of row skip locked
),
followers as (
  select ctid, size, place, head
  from (select *, row_number() over (partition by head order by place) as standing from locked) as numbered
  where standing = place
),
picked as materialized (
  select ctid, turn as few from (
    select *, sum(size) over (order by turn, place, since, seq rows unbounded preceding) - size as before
    from (
      select turn, 0 as place, ctid, size, since, seq from heads
      union all
      select 3, place, ctid, size, null, head from followers) as candidates) as counted
  where before < $7::bigint
  order by turn, place, since, seq
  limit $4::bigint
)
{take}
