-- Finds rows whose attempts are spent: leases that ran out, and due rows among the oldest whose allowance was lowered.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit
-- Uses {name}_lease_idx and {name}_due_idx. Answers one row: their numbers (a JSON array), whether suspects wait, and what time was seen last.
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
spent as (
  select row.seq
  from wanted cross join {table} as row
  where row.seq in (
      select seq from {table}
      where status = 'pending' and namespace = wanted.namespace and next_attempt_at <= ?4
      order by next_attempt_at, seq
      limit {largest_claim})
    and row.attempts >= coalesce(row.max_attempts, ?3) and (?2 is null or row.tenant_id = ?2)
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
