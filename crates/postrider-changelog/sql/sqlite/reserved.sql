-- Writes the version that this transaction has reserved. It is counted by the program, because it has more bits than SQLite's numbers.
-- ?1 version
-- Uses the primary key.
update {settings}
set value = ?1
where key = 'changelog.version'
