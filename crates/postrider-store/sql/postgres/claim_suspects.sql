-- Takes rows whose worker died on them repeatedly; claim.sql leaves them out.
-- $1 namespaces or null for all, $2 tenant or null, $3 max attempts, $4 limit, $5 worker, $6 lease µs
-- Uses {name}_lease_idx, then the rows' addresses.
with picked as materialized (
  select ctid, attempts as few
  from {table}
  where status = 'processing' and locked_until < now()
    and attempts < coalesce(max_attempts, $3::int) and {suspect}
    and {in_scope}
  order by locked_until
  limit $4::bigint
  for update skip locked
)
{take}
