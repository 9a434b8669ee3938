-- Consumers of the changelog that do not get on, and since when; the longest first.
-- No parameters
-- Reads the whole table, which is small.
select name, strftime('%Y-%m-%dT%H:%M:%SZ', failed_since / 1000000, 'unixepoch') as since
from {cursors}
where failed_since is not null
order by failed_since, name
