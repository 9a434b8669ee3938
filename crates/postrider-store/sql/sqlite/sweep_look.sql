-- Finds rows whose attempts are spent: leases that ran out, and due rows whose allowance was lowered, among the oldest and the first of these rows' lines (namespace, tenant, key).
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit
-- Uses {name}_lease_idx, {name}_due_idx and {name}_key_idx. Answers one row: their numbers (a JSON array), whether suspects wait, and what time was seen last.
with recursive {namespaces},
crashed as (
  select seq
  from {table}
  where status = 'processing' and locked_until < ?4
    and attempts >= coalesce(max_attempts, ?3)
    and {in_scope}
  order by locked_until
  limit ?5
),
front as materialized (
  select row.seq, row.namespace, row.key, row.tenant_id, row.attempts >= coalesce(row.max_attempts, ?3) and (?2 is null or row.tenant_id = ?2) as spent
  from wanted cross join {table} as row
  where row.seq in (
    select seq from {table}
    where status = 'pending' and namespace = wanted.namespace and next_attempt_at <= ?4
    order by next_attempt_at, seq
    limit {largest_claim})
),
-- The first rows of lines in a full front: those behind may wait for one that is not among the oldest, which would never be found otherwise, because with order per key they do not go away.
firsts as (
  select (
    select case when row.attempts >= coalesce(row.max_attempts, ?3) and (?2 is null or row.tenant_id = ?2) and row.next_attempt_at <= ?4 then row.seq end
    from {table} as row
    where row.namespace = line.namespace and row.key = line.key and row.tenant_id is line.tenant_id and row.status in ('pending', 'processing') and +row.status = 'pending'
    order by row.seq
    limit 1) as seq
  from (
    select distinct namespace, key, tenant_id from front
    where key is not null and namespace in (select namespace from front group by namespace having count(*) >= {largest_claim})) as line
),
spent as (
  select seq from front where spent
  union
  select seq from firsts where seq is not null
  limit ?5
)
select
  (select json_group_array(seq) from (select seq from crashed union all select seq from spent)) as spent,
  exists (
    select 1 from {table}
    where status = 'processing' and locked_until < ?4
      and attempts < coalesce(max_attempts, ?3) and {suspect}
      and {in_scope}) as suspects,
  (select seen from {clock}) as seen
