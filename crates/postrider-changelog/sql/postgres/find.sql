-- The entry of a unit of work.
-- $1 id of the unit of work
-- Uses the unique key.
select encode(versionstamp, 'hex')
from {changelog}
where uow_id = $1::text
