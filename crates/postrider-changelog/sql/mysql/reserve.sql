-- Takes the next transaction version and keeps every other writer waiting until this transaction ends.
-- No parameters
-- Uses the primary key. A decimal number, because the version has more bits than LAST_INSERT_ID has.
insert into {settings} (`key`, value)
values ('changelog.version', '1')
on duplicate key update value = cast(cast(value as decimal(25, 0)) + 1 as char)
