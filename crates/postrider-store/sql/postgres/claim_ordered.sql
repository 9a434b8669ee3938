-- Takes eligible rows under a lease with order per key: as claim.sql does, but of each key only the first that is not finished, and then what comes after it while there is room.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes, $8 the most that come after others
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
-- The rows that have been due for longest. Most of them may wait for others of their keys, so these are looked up by key: else a backlog of few keys would be read to its end for every claim.
front as materialized (
  select oldest.*
  from share, unnest(share.namespaces) with ordinality as wanted(namespace, few), lateral (
    select * from (
      select ctid, namespace, key, next_attempt_at, seq
      from {table}
      where status = 'pending' and namespace = wanted.namespace and next_attempt_at <= now()
      order by next_attempt_at, seq
      limit {largest_claim}) as front
    limit greatest(2 * share.size, 16)) as oldest
  where wanted.few between 0 and 2147483647
),
keys as materialized (
  select namespace, key, count(*) as few from front where key is not null group by namespace, key
),
firsts as materialized (
  select line.ctid, line.few, picked.namespace
  from keys as picked, lateral (
    select ctid, attempts as few from {table} as row
    where row.namespace = picked.namespace and row.key = picked.key and row.status in ('pending', 'processing')
    order by row.seq
    limit 1) as line
  where {few}
  union all
  select ctid, 0, namespace from front where key is null
),
near as materialized (
  select row.*
  from share, unnest(share.namespaces) with ordinality as wanted(namespace, few), lateral (
    select * from (
      select row.ctid, {size_of_row} as size, row.next_attempt_at, row.seq, row.namespace, row.key
      from firsts as picked join {table} as row on row.ctid = picked.ctid
      where {few} and picked.namespace = wanted.namespace and (row.status = 'pending') is true and row.next_attempt_at <= now()
        and row.attempts < coalesce(row.max_attempts, $3::int)
        and ($2::uuid is null or row.tenant_id = $2::uuid)
      order by row.next_attempt_at, row.seq
      for update of row skip locked) as head
    limit share.size) as row
  where wanted.few between 0 and 2147483647
),
-- If that was little, what comes after those rows; each is asked what it waits for, but for those of the most frequent keys.
far as materialized (
  select row.*
  from share, unnest(share.namespaces) with ordinality as wanted(namespace, few),
    lateral (select count(*) as rows from near where near.namespace = wanted.namespace) as found,
    lateral (
      select coalesce(array_agg(frequent.key), '{}') as keys
      from (select key from keys where keys.namespace = wanted.namespace and keys.few >= 16 order by keys.few desc limit 32) as frequent) as busy,
    lateral (
      select next_attempt_at, seq from front where front.namespace = wanted.namespace
      order by next_attempt_at desc, seq desc limit 1) as last, lateral (
    select * from (
      select ctid, {size} as size, next_attempt_at, seq, namespace, key
      from {table} as mine
      where status = 'pending' and namespace = wanted.namespace and next_attempt_at <= now()
        and (next_attempt_at, seq) > (last.next_attempt_at, last.seq)
        and attempts < coalesce(max_attempts, $3::int)
        and ($2::uuid is null or tenant_id = $2::uuid)
        and (mine.key is null or mine.key <> all (busy.keys)) and {in_turn}
      order by next_attempt_at, seq
      limit {largest_claim}
      for update skip locked) as head
    limit case when found.rows * 4 < share.size then share.size - found.rows else 0 end) as row
  where wanted.few between 0 and 2147483647
),
heads as materialized (
  select * from (
    select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before
    from (
      select 1 as turn, ctid, size, locked_until as since, seq, namespace, key from expired
      union all
      select 2, ctid, size, next_attempt_at, seq, namespace, key from (select * from near union select * from far) as due) as candidates) as counted
  where before < $7::bigint
  order by turn, since, seq
  limit $4::bigint
),
-- How many more there is room for, and how far each line is looked through: not all of them to their end, if there are many.
room as materialized (
  select places, least({longest_run} - 1, 1 + 8 * places / greatest(keys, 1)) as each
  from (select greatest(least($4::bigint - count(*), $8::bigint), 0) as places, count(key) as keys from heads) as counted
),
-- What comes after them, up to the first that may not be taken: the second of each key before the third of any.
runs as materialized (
  select run.*, head.seq as head
  from room, heads as head, lateral (
    select ctid, place, few, bool_and(may) over (order by place) as ready
    from (
      select ctid, row_number() over (order by seq) as place, attempts as few,
             attempts < coalesce(max_attempts, $3::int) and ($2::uuid is null or tenant_id = $2::uuid)
             and (status = 'pending' and next_attempt_at <= now() or status = 'processing' and locked_until < now() and not {suspect}) as may
      from (
        select * from (
          select ctid, seq, status, attempts, max_attempts, tenant_id, next_attempt_at, locked_until
          from {table} as follower
          where follower.namespace = head.namespace and follower.key = head.key and follower.seq > head.seq
            and follower.status in ('pending', 'processing')
          order by follower.seq
          limit {longest_run} - 1) as line
        limit room.each) as line) as looked_at) as run
  where run.ready and room.places > 0
  order by run.place, head.seq
  limit (select places from room)
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
