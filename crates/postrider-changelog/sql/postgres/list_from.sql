-- Entries from a versionstamp on, in the order of their commits. That of the cursor is the first, without its payload: it is
-- there to check the cursor.
-- $1 versionstamp, $2 limit
-- Uses the primary key.
select
  encode(versionstamp, 'hex'), id::text, uow_id, case when versionstamp = $1::bytea then 'null' else payload::text end, ref_map::text,
  round(extract(epoch from created_at) * 1000000)::bigint::text
from {changelog}
where versionstamp >= $1::bytea
order by versionstamp
limit $2::bigint
