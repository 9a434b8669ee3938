-- Whether there is something to claim, without disturbing who writes.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now
-- Uses {name}_lease_idx and {name}_due_idx. Also says what time was seen last, and when the newest row was written if it was due then.
with recursive {namespaces}
select
  (select seen from {clock}) as seen,
  (select created_at from (select * from {table} order by seq desc limit 1)
   where status = 'pending' and next_attempt_at = created_at and attempts = 0) as newest,
  exists (
    select 1 from {table}
    where status = 'processing' and locked_until < ?4
      and attempts < coalesce(max_attempts, ?3) and {which} and {in_scope}) as expired,
  (select json_group_array(namespace) from wanted
   where exists (
     select 1 from {table} as row
     where row.status = 'pending' and row.namespace = wanted.namespace and row.next_attempt_at <= ?4
       and row.attempts < coalesce(row.max_attempts, ?3)
       and (?2 is null or row.tenant_id = ?2))) as due
