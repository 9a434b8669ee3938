-- Writes an entry, if the transaction still has the version that it reserved.
-- Id, versionstamp, id of the unit of work, payload, references, transaction version
-- Uses the primary key of the settings.
insert into {changelog} (id, versionstamp, uow_id, payload, ref_map)
select ?, ?, ?, ?, ?
from {settings}
where `key` = 'changelog.version' and value = ?
