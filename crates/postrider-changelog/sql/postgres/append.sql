-- Writes an entry, if the transaction still has the version that it reserved.
-- $1 id, $2 versionstamp, $3 id of the unit of work, $4 payload, $5 references, $6 transaction version
-- Uses the primary key of the settings.
insert into {changelog} (id, versionstamp, uow_id, payload, ref_map)
select $1::text::uuid, $2::bytea, $3::text, $4::text::json, $5::text::json
from {settings}
where key = 'changelog.version' and value = $6::text
