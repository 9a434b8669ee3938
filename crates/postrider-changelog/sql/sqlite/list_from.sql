-- Entries from a versionstamp on, in the order of their commits. That of the cursor is the first, without its payload: it is
-- there to check the cursor.
-- ?1 versionstamp, ?2 limit
-- Uses the primary key.
select
  lower(hex(versionstamp)), id, uow_id, case when versionstamp = ?1 then 'null' else payload end, ref_map, cast(created_at as text)
from {changelog}
where versionstamp >= ?1
order by versionstamp
limit ?2
