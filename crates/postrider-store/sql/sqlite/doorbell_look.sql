-- Whether a commit is worth waking up for: the newest row's number, and whether something can be claimed.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 now
-- Uses {name}_due_idx and {name}_lease_idx.
with recursive {namespaces}
select
  (select max(seq) from {table}) as newest,
  exists (select 1 from {table} where status = 'processing' and locked_until < ?3 and {in_scope})
  or exists (
    select 1 from wanted
    where exists (
      select 1 from {table} as row
      where row.status = 'pending' and row.namespace = wanted.namespace and row.next_attempt_at <= ?3
        and (?2 is null or row.tenant_id = ?2))) as due
