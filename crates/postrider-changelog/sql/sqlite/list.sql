-- Entries after a versionstamp, in the order of their commits.
-- ?1 versionstamp, ?2 limit
-- Uses the primary key.
select
  lower(hex(versionstamp)), id, uow_id, payload, ref_map, cast(created_at as text)
from {changelog}
where versionstamp > ?1
order by versionstamp
limit ?2
