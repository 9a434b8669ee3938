-- Takes eligible rows under a lease: expired leases first, then what has been due for longest, in equal shares for the namespaces in scope.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs, $7 max bytes
-- Uses {name}_lease_idx and {name}_due_idx, then the rows' addresses.
with recursive expired as materialized (
  select ctid, {size} as size, locked_until, seq
  from {table}
  where status = 'processing' and locked_until < now()
    and attempts < coalesce(max_attempts, $3::int) and not {suspect}
    and {in_scope}
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
due as materialized (
  select row.*
  from share, unnest(share.namespaces) as wanted(namespace), lateral (
    select * from (
      select ctid, {size} as size, next_attempt_at, seq
      from {table}
      where status = 'pending' and namespace = wanted.namespace and next_attempt_at <= now()
        and attempts < coalesce(max_attempts, $3::int)
        and ($2::uuid is null or tenant_id = $2::uuid)
      order by next_attempt_at, seq
      limit {largest_claim}
      for update skip locked) as head
    limit share.size) as row
),
picked as materialized (
  select ctid, turn as few from (
    select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before
    from (
      select 1 as turn, ctid, size, locked_until as since, seq from expired
      union all
      select 2, ctid, size, next_attempt_at, seq from due) as candidates) as counted
  where before < $7::bigint
  order by turn, since, seq
  limit $4::bigint
)
{take}
