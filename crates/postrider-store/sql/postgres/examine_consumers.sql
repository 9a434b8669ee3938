-- Consumers of the changelog that do not get on, and since when; the longest first.
-- No parameters
-- Reads the whole table, which is small.
select name, to_char(failed_since at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since
from {cursors}
where failed_since is not null
order by failed_since, name
