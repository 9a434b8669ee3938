-- Makes a consumer, unless there is one of this name.
-- Name, versionstamp, entry
-- Uses the primary key.
insert ignore into {cursors} (name, versionstamp, entry_id)
values (?, ?, ?)
