-- All consumers: name, how far each has read, who holds it, and why it does not get on since when.
-- No parameters
-- Reads the whole table, which is small.
select name, encode(versionstamp, 'hex'), entry_id::text, case when locked_until > clock_timestamp() then locked_by::text end, last_error, round(extract(epoch from failed_since) * 1000000)::bigint::text
from {cursors}
order by name
