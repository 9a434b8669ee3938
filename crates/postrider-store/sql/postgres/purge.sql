-- Deletes rows that finished long ago; one caller at a time, the others delete nothing.
-- $1 namespaces or null for all, $2 tenant or null, $3 age µs, $4 limit
-- Uses {name}_finished_idx, then the rows' addresses.
with picked as materialized (
  select ctid, attempts as few
  from {table}
  where status = '{finished}' and updated_at <= now() - $3::bigint * interval '1 microsecond'
    and {in_scope}
    and (select pg_try_advisory_xact_lock(hashtextextended('{bell} purge', 0)))
  order by updated_at
  limit $4::bigint
  for update skip locked
)
delete from {table} as row
using picked
where row.ctid = picked.ctid and {few} and row.status = '{finished}'
returning 1
