-- Whether there is something to claim in a table that is not indexed by namespace, without disturbing who writes.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now
-- Uses the table's indexes on the status and the due time, and on the lock. Also says what time was seen last, and when the newest row was written if it was due then. What is due is a list of one or none.
select
  (select seen from {clock}) as seen,
  (select cast({created_at} as integer) from (select * from {table} order by {number} desc limit 1)
   where {pending} and {due_at} = {created_at} and {attempts} = 0) as newest,
  exists (
    select 1 from {table}
    where {processing} and {lease_over ?4} and {may_try ?3} and {which} and {in_scope}) as expired,
  case when exists (
    select 1 from {table} where {pending} and {due ?4} and {may_try ?3} and {in_scope}) then '[""]' else '[]' end as due
