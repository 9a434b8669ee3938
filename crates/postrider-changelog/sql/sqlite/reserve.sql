-- Takes the write lock, if the transaction does not have it, and answers the newest transaction version and the time in milliseconds since 1970.
-- No parameters
-- Uses the primary key.
insert into {settings} (key, value)
values ('changelog.version', '0')
on conflict (key) do update
set value = value
returning value, cast({now} / 1000 as text)
