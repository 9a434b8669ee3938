-- Takes eligible rows under a lease with order per key: as claim.sql does, but of each line (namespace, tenant, key) only the first that is not finished, and then what comes after it while there is room.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes, $8 the most that come after others, $9 whether to look at everything
-- Uses {name}_lease_idx, {name}_due_idx and {name}_key_idx, then the rows' addresses.
with recursive expired as materialized (
  select ctid, {size} as size, {locked} as locked_until, {seq} as seq, {namespace} as namespace, {tenant} as tenant, {key} as key
  from {table} as mine
  where {processing} and {lease_over}
    and {may_try} and not {suspect}
    and {in_scope} and {in_turn}
  order by {locked}
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
      select from {table} where {pending} and {namespace} = name and {due}
      order by {due_at} limit 1) as any_due) as wanted(namespace)
),
-- The rows that have been due for longest. Most of them may wait for others of their lines, so these are looked up by line: else a backlog of few keys would be read to its end for every claim.
front as materialized (
  select oldest.*
  from share, unnest(share.namespaces) with ordinality as wanted(namespace, few), lateral (
    select * from (
      select ctid, {namespace} as namespace, {tenant} as tenant, {key} as key, {due_at} as next_attempt_at, {seq} as seq
      from {table}
      where {pending} and {namespace} = wanted.namespace and {due}
        and ($2::uuid is null or {tenant_id} = $2::uuid)
      order by {due_at}, {seq}
      limit {largest_claim}) as front
    limit greatest(2 * share.size, 16)) as oldest
  where wanted.few between 0 and 2147483647
),
lines as materialized (
  select namespace, tenant, key, count(*) as few from front where key is not null group by namespace, tenant, key
),
firsts as materialized (
  select line.ctid, line.few, picked.namespace, case when line.under_way then picked.few else 0 end as moving
  from lines as picked, lateral (
    select ctid, {attempts} as few, {row.processing} and not {row.lease_over} as under_way from {table} as row
    where {row.namespace} = picked.namespace and {row.tenant} = picked.tenant and {row.key} = picked.key and {row.open}
    order by {row.tenant}, {row.seq}
    limit 1) as line
  where {few}
  union all
  select ctid, 0, namespace, 0 from front where key is null
),
near as materialized (
  select row.*
  from share, unnest(share.namespaces) with ordinality as wanted(namespace, few), lateral (
    select * from (
      select row.ctid, {row.size} as size, {row.due_at} as next_attempt_at, {row.seq} as seq, {row.namespace} as namespace, {row.tenant} as tenant, {row.key} as key
      from firsts as picked join {table} as row on row.ctid = picked.ctid
      where {few} and picked.namespace = wanted.namespace and ({row.pending}) is true and {row.due}
        and {row.may_try}
        and ($2::uuid is null or {row.tenant_id} = $2::uuid)
      order by {row.due_at}, {row.seq}
      for update of row skip locked) as head
    limit share.size) as row
  where wanted.few between 0 and 2147483647
),
-- If that was nothing, what comes after those rows; each is asked what it waits for, but for those of the most frequent lines. Not if most of them wait
-- for a row that somebody is publishing: they move on by themselves, and all of a backlog would be read to find out that every key is taken. But what
-- stands behind them must not wait for as long as they are many, so now and then everything is looked at until there is enough.
far as materialized (
  select row.*
  from share, unnest(share.namespaces) with ordinality as wanted(namespace, few),
    lateral (select count(*) as rows from near where near.namespace = wanted.namespace) as found,
    lateral (select coalesce(sum(moving), 0) as rows from firsts where firsts.namespace = wanted.namespace) as moving,
    lateral (select count(*) as rows from front where front.namespace = wanted.namespace) as looked_at,
    lateral (
      select coalesce(array_agg(frequent.tenant || frequent.key), '{}') as lines
      from (select tenant, key from lines where lines.namespace = wanted.namespace and lines.few >= 16 order by lines.few desc limit 32) as frequent) as busy,
    lateral (
      select next_attempt_at, seq from front where front.namespace = wanted.namespace
      order by next_attempt_at desc, seq desc limit 1) as last, lateral (
    select * from (
      select ctid, {mine.size} as size, {mine.due_at} as next_attempt_at, {mine.seq} as seq, {mine.namespace} as namespace, {mine.tenant} as tenant, {mine.key} as key
      from {table} as mine
      where {mine.pending} and {mine.namespace} = wanted.namespace and {mine.due}
        and ({mine.due_at}, {mine.seq}) > (last.next_attempt_at, last.seq)
        and {mine.may_try}
        and ($2::uuid is null or {mine.tenant_id} = $2::uuid)
        and ({mine.key} is null or {mine.tenant} || {mine.key} <> all (busy.lines)) and {in_turn}
      order by {mine.due_at}, {mine.seq}
      limit {largest_claim}
      for update skip locked) as head
    limit case when $9::boolean then greatest(share.size - found.rows, 0) when found.rows = 0 and moving.rows * 2 < looked_at.rows then share.size else 0 end) as row
  where wanted.few between 0 and 2147483647
),
heads as materialized (
  select * from (
    select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before
    from (
      select 1 as turn, ctid, size, locked_until as since, seq, namespace, tenant, key from expired
      union all
      select 2, ctid, size, next_attempt_at, seq, namespace, tenant, key from (select * from near union select * from far) as due) as candidates) as counted
  where before < $7::bigint
  order by turn, since, seq
  limit $4::bigint
),
-- How many more there is room for, and how far each line is looked through: not all of them to their end, if there are many.
room as materialized (
  select places, least({longest_run} - 1, 1 + 8 * places / greatest(keys, 1)) as each
  from (select greatest(least($4::bigint - count(*), $8::bigint), 0) as places, count(key) as keys from heads) as counted
),
-- What comes after them, up to the first that may not be taken: the second of each line before the third of any.
runs as materialized (
  select run.*, head.seq as head
  from room, heads as head, lateral (
    select ctid, place, few, bool_and(may) over (order by place) as ready
    from (
      select ctid, row_number() over (order by seq) as place, few, may
      from (
        select * from (
          select ctid, {follower.seq} as seq, {follower.attempts} as few,
                 {follower.may_try} and ($2::uuid is null or {follower.tenant_id} = $2::uuid)
                 and ({follower.pending} and {follower.due} or {follower.processing} and {follower.lease_over} and not {suspect}) as may
          from {table} as follower
          where {follower.namespace} = head.namespace and {follower.tenant} = head.tenant and {follower.key} = head.key and {follower.seq} > head.seq
            and {follower.open}
          order by {follower.tenant}, {follower.seq}
          limit {longest_run} - 1) as line
        limit room.each) as line) as looked_at) as run
  where run.ready and room.places > 0
  order by run.place, head.seq
  limit (select places from room)
),
-- One that somebody else has locked ends its run.
locked as materialized (
  select row.ctid, {row.size} as size, picked.head, picked.place
  from runs as picked join {table} as row on row.ctid = picked.ctid
  where {few} and {row.may_try}
    and ({row.pending} and {row.due} or {row.processing} and {row.lease_over})
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
