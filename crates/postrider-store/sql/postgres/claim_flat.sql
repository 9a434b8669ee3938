-- Takes eligible rows of a table that is not indexed by namespace: expired leases first, then what has been due for longest.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes, $8 ids that are not to be taken
-- Uses the table's indexes on the status and the due time, and on the lock, then the rows' addresses.
with expired as materialized (
  select * from (
    select ctid, {size} as size, {locked} as since
    from {table}
    where {processing} and {lease_ended}
      and {may_try} and not {suspect}
      and {in_scope}
    order by {locked}
    limit $4::bigint
    for update skip locked) as ended
  union all
  -- Left behind by somebody who did not say when. Apart, so that no walk goes through all rows that nobody has locked.
  select * from (
    select ctid, {size} as size, {locked} as since
    from {table}
    where {processing} and {unlocked}
      and {may_try} and not {suspect}
      and {in_scope}
    limit $4::bigint
    for update skip locked) as left_behind
),
due as materialized (
  select *, row_number() over () as place from (
    select * from (
      select ctid, {size} as size, {due_at} as since
      from {table}
      where {pending} and {due} and {may_try} and {in_scope} and {raw_id} <> all ({raws $8::uuid[]})
      order by {due_at}, {tie}
      limit {largest_claim}
      for update skip locked) as head
    union all
    select * from (
      select ctid, {size} as size, {due_at} as since
      from {table}
      where {pending} and {undated} and {may_try} and {in_scope} and {raw_id} <> all ({raws $8::uuid[]})
      limit {largest_claim}
      for update skip locked) as undated
    limit greatest($4::bigint - (select count(*) from expired), 0)) as few
),
picked as materialized (
  select ctid, turn as few from (
    select *, sum(size) over (order by turn, since, place rows unbounded preceding) - size as before
    from (
      select 1 as turn, ctid, size, since, 0 as place from expired
      union all
      select 2, ctid, size, since, place from due) as candidates) as counted
  where before < $7::bigint
  order by turn, since, place
  limit $4::bigint
)
{take}
