-- Whether a commit is worth waking up for, in a table that is not indexed by namespace: the newest row's number, and whether something can be claimed.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 now
-- Uses the table's indexes on the status and the due time, and on the lock.
select
  (select max({number}) from {table}) as newest,
  exists (select 1 from {table} where {processing} and {lease_over ?3} and {in_scope})
  or exists (select 1 from {table} where {pending} and {due ?3} and {in_scope}) as due
