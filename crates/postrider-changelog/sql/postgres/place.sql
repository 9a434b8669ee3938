-- The newest entry up to a versionstamp.
-- $1 versionstamp
-- Uses the primary key.
select encode(versionstamp, 'hex'), id::text
from {changelog}
where versionstamp <= $1::bytea
order by versionstamp desc
limit 1
