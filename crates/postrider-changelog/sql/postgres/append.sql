-- Writes an entry.
-- $1 id, $2 versionstamp, $3 id of the unit of work, $4 payload, $5 references
-- Uses no index.
insert into {changelog} (id, versionstamp, uow_id, payload, ref_map)
values ($1::text::uuid, $2::bytea, $3::text, $4::text::json, $5::text::json)
