-- The newest entry up to a versionstamp.
-- ?1 versionstamp
-- Uses the primary key.
select lower(hex(versionstamp)), id
from {changelog}
where versionstamp <= ?1
order by versionstamp desc
limit 1
