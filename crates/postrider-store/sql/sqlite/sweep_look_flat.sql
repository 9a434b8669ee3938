-- Finds rows whose attempts are spent, in a table that is not indexed by namespace: leases that ran out, and due rows whose allowance was lowered, among the oldest.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 max attempts, ?4 now, ?5 limit
-- Uses the table's indexes on the status and the due time, and on the lock. Answers one row: their numbers (a JSON array), whether suspects wait, and what time was seen last.
with crashed as (
  select {number} as seq
  from {table}
  where {processing} and {lease_over ?4} and {spent ?3} and {in_scope}
  order by {locked}
  limit ?5
),
front as materialized (
  select {number} as seq, {spent ?3} and {in_scope} as spent
  from {table}
  where {pending} and {due ?4}
  order by {due_at}, {number}
  limit {largest_claim}
),
spent as (select seq from front where spent limit ?5)
select
  (select json_group_array(seq) from (select seq from crashed union all select seq from spent)) as spent,
  exists (
    select 1 from {table}
    where {processing} and {lease_over ?4} and {may_try ?3} and {suspect ?3} and {in_scope}) as suspects,
  (select seen from {clock}) as seen
