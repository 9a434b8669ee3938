-- All consumers: name, how far each has read, who holds it, and why it does not get on since when.
-- No parameters
-- Reads the whole table, which is small.
select convert(name using utf8mb4), lower(hex(versionstamp)), entry_id, case when locked_until > {now} then locked_by end, last_error, cast({micros_of} failed_since) as char)
from {cursors}
order by name
