-- The newest entry up to a versionstamp.
-- Versionstamp
-- Uses the primary key.
select lower(hex(versionstamp)), id
from {changelog}
where versionstamp <= ?
order by versionstamp desc
limit 1
