-- Buries rows whose attempts are spent, in a table that is not indexed by namespace: leases that ran out, and due rows whose allowance was lowered, among the oldest.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit
-- Uses the table's indexes on the status and the due time, and on the lock, then the rows' addresses. Answers nothing but whether suspects wait if nobody is buried.
with crashed as materialized (
  select * from (
    select ctid, {attempts} as few
    from {table}
    where {processing} and {lease_ended} and {spent} and {in_scope}
    order by {locked}
    limit $4::bigint
    for update skip locked) as ended
  union all
  select * from (
    select ctid, {attempts} as few
    from {table}
    where {processing} and {unlocked} and {spent} and {in_scope}
    limit $4::bigint
    for update skip locked) as left_behind
),
spent as materialized (
  select ctid, few from (
    select ctid, {attempts} as few, {spent} as spent
    from {table}
    where {pending} and {due} and {in_scope}
    order by {due_at}
    limit {largest_claim}) as front
  where front.spent
  union all
  select ctid, few from (
    select ctid, {attempts} as few, {spent} as spent
    from {table}
    where {pending} and {undated} and {in_scope}
    limit {largest_claim}) as undated
  where undated.spent
  limit $4::bigint
),
buried as (
  update {table} as row
  set {set_swept}
  from (select * from crashed union all select * from spent) as picked
  where row.ctid = picked.ctid and {few}
    and ({row.processing} and {row.lease_over} or {row.pending} and {row.due_or_undated})
    and {row.spent}
  returning {row.id} as id
)
select buried.id, waiting.suspects
from (
  select exists (
    select from {table}
    where {processing} and {lease_over} and {may_try} and {suspect} and {in_scope}) as suspects) as waiting
left join buried on true
