-- Entries from a versionstamp on, in the order of their commits. That of the cursor is the first, without its payload: it is
-- there to check the cursor.
-- Versionstamp, versionstamp, limit
-- Uses the primary key.
select
  lower(hex(versionstamp)), id, convert(uow_id using utf8mb4), if(versionstamp = ?, 'null', payload), ref_map, cast({micros_of} created_at) as char)
from {changelog}
where versionstamp >= ?
order by versionstamp
limit ?
