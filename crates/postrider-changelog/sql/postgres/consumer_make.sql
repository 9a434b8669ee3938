-- Makes a consumer, unless there is one of this name.
-- $1 name, $2 versionstamp, $3 entry
-- Uses the primary key.
insert into {cursors} (name, versionstamp, entry_id)
values ($1::text, $2::bytea, $3::text::uuid)
on conflict (name) do nothing
