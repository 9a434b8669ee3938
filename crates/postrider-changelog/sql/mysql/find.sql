-- The entry of a unit of work.
-- Id of the unit of work
-- Uses the unique key.
select lower(hex(versionstamp))
from {changelog}
where uow_id = ?
