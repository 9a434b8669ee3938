-- Takes eligible rows under a lease with order per key: as claim.sql does, but of each line (namespace, tenant, key) only the first that is not finished, and then what comes after it while there is room.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit, ?6 worker, ?7 lease µs, ?8 max bytes, ?9 namespaces with due rows (a JSON array), ?10 how many these are, ?11 the most that come after others
-- Uses {name}_lease_idx, {name}_due_idx and {name}_key_idx, then the rows' numbers.
with expired as materialized (
  select seq, {size} as size, locked_until, namespace, key, tenant_id
  from {table} as mine
  where status = 'processing' and locked_until < ?4
    and attempts < coalesce(max_attempts, ?3) and not {suspect}
    and {in_scope}{and_in_turn}
  order by locked_until
  limit ?5
),
share(size) as materialized (select (?5 - count(*) + max(?10, 1) - 1) / max(?10, 1) from expired),
-- The rows that have been due for longest. Most of them may wait for others of their lines, so these are looked up by line: else a backlog of few keys would be read to its end for every claim.
front as materialized (
  select row.seq, row.namespace, row.key, row.tenant_id, row.next_attempt_at
  from json_each(?9) as wanted cross join {table} as row
  where row.seq in (
    select seq from {table}
    where status = 'pending' and namespace = wanted.value and next_attempt_at <= ?4
    order by next_attempt_at, seq
    limit (select min({largest_claim}, max(2 * size, 16)) from share))
),
near as materialized (
  select seq, size, next_attempt_at, namespace, key, tenant_id
  from (
    select row.seq, {row.size} as size, row.next_attempt_at, row.namespace, row.key, row.tenant_id,
      row_number() over (partition by row.namespace order by row.next_attempt_at, row.seq) as place
    from (
      select seq from front where key is null
      union all
      select (
        select open.seq from {table} as open
        where open.namespace = line.namespace and open.key = line.key and open.tenant_id is line.tenant_id and open.status in ('pending', 'processing')
        order by open.seq
        limit 1)
      from (select distinct namespace, key, tenant_id from front where key is not null) as line) as picked
    cross join {table} as row
    where row.seq = picked.seq and +row.status = 'pending' and row.next_attempt_at <= ?4
      and row.attempts < coalesce(row.max_attempts, ?3)
      and (?2 is null or row.tenant_id = ?2))
  where place <= (select size from share)
),
-- If that was little, what comes after those rows; each is asked what it waits for.
last as materialized (
  select namespace, next_attempt_at, seq
  from (select *, row_number() over (partition by namespace order by next_attempt_at desc, seq desc) as place from front)
  where place = 1
),
far as materialized (
  select row.seq, {row.size} as size, row.next_attempt_at, row.namespace, row.key, row.tenant_id
  from last cross join {table} as row
  where row.seq in (
    select seq from {table} as mine
    where status = 'pending' and namespace = last.namespace and next_attempt_at <= ?4
      and next_attempt_at >= last.next_attempt_at and (next_attempt_at, seq) > (last.next_attempt_at, last.seq)
      and attempts < coalesce(max_attempts, ?3)
      and (?2 is null or tenant_id = ?2){and_in_turn}
    order by next_attempt_at, seq
    limit (select case when (select count(*) from near) * 4 < ?5 then size else 0 end from share))
),
firsts as materialized (
  select * from (
    select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before
    from (
      select 1 as turn, seq, size, locked_until as since, namespace, key, tenant_id from expired
      union all
      select 2, seq, size, next_attempt_at, namespace, key, tenant_id from (select * from near union select * from far)))
  where before < ?8
  order by turn, since, seq
  limit ?5
),
-- How many more there is room for, and how far each line is looked through: not all of them to their end, if there are many.
room as materialized (
  select places, min({longest_run} - 1, 1 + 8 * places / max(keys, 1)) as each
  from (select max(min(?5 - count(*), ?11), 0) as places, count(key) as keys from firsts)
),
-- What comes after them, up to the first that may not be taken.
runs as (
  select seq, size, place, first, min(may) over (partition by first order by place) as ready
  from (
    select row.seq, {row.size} as size, first.seq as first, row_number() over (partition by first.seq order by row.seq) as place,
      row.attempts < coalesce(row.max_attempts, ?3) and (?2 is null or row.tenant_id = ?2)
      and (row.status = 'pending' and row.next_attempt_at <= ?4 or row.status = 'processing' and row.locked_until < ?4 and not {suspect}) as may
    from firsts as first cross join {table} as row
    where (select places from room) > 0 and row.seq in (
      select follower.seq from {table} as follower
      where follower.namespace = first.namespace and follower.key = first.key and follower.tenant_id is first.tenant_id and follower.seq > first.seq
        and follower.status in ('pending', 'processing')
      order by follower.seq
      limit (select each from room)))
),
picked as (
  select seq from (
    select *, sum(size) over (order by turn, place, since, seq rows unbounded preceding) - size as before
    from (
      select turn, 0 as place, seq, size, since from firsts
      union all
      select * from (
        select 3, place, seq, size, first from runs where ready
        order by place, first limit (select places from room))))
  where before < ?8
  order by turn, place, since, seq
  limit ?5
)
{take}
