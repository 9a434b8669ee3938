-- Entries after a versionstamp, in the order of their commits.
-- Versionstamp, limit
-- Uses the primary key.
select
  lower(hex(versionstamp)), id, convert(uow_id using utf8mb4), payload, ref_map, cast({micros_of} created_at) as char)
from {changelog}
where versionstamp > ?
order by versionstamp
limit ?
