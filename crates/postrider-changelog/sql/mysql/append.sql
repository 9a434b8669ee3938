-- Writes an entry.
-- Id, versionstamp, id of the unit of work, payload, references
-- Uses no index.
insert into {changelog} (id, versionstamp, uow_id, payload, ref_map)
values (?, ?, ?, ?, ?)
