-- What this transaction has reserved: the version, and the time in milliseconds since 1970.
-- No parameters
-- Uses the primary key.
select value, cast({micros_of} {now}) div 1000 as char)
from {settings}
where `key` = 'changelog.version'
