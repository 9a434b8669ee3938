-- Puts dead rows back to pending with all their attempts, oldest first.
-- $1 namespaces or null for all, $2 tenant or null, $3 topic or null, $4 ids or null, $5 limit
-- Uses {name}_finished_idx, then the rows' addresses.
with picked as materialized (
  select ctid, attempts as few
  from {table}
  where status = 'dead'
    and {in_scope}
    and ($3::text is null or topic = $3::text)
    and ($4::uuid[] is null or id = any ($4::uuid[]))
  order by updated_at, seq
  limit $5::bigint
  for update skip locked
)
update {table} as row
set status = 'pending', attempts = 0, next_attempt_at = now(), updated_at = now()
from picked
where row.ctid = picked.ctid and {few} and row.status = 'dead'
returning row.id
