-- Makes a consumer, unless there is one of this name.
-- ?1 name, ?2 versionstamp, ?3 entry
-- Uses the primary key.
insert into {cursors} (name, versionstamp, entry_id)
values (?1, ?2, ?3)
on conflict (name) do nothing
