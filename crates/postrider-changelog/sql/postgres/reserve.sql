-- Takes the next transaction version and keeps every other writer waiting until this transaction ends: the version, and the time in milliseconds since 1970.
-- No parameters
-- Uses the primary key.
insert into {settings} as counter (key, value)
values ('changelog.version', '1')
on conflict (key) do update
set value = (counter.value::numeric + 1)::text
returning value, floor(extract(epoch from clock_timestamp()) * 1000)::bigint::text
