-- Entries from a versionstamp on, that of the cursor included, by which it is checked, in the order of their commits.
-- $1 versionstamp, $2 limit
-- Uses the primary key.
select
  encode(versionstamp, 'hex'), id::text, uow_id, payload::text, ref_map::text,
  round(extract(epoch from created_at) * 1000000)::bigint::text
from {changelog}
where versionstamp >= $1::bytea
order by versionstamp
limit $2::bigint
