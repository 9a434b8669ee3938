-- Consumers of the changelog that do not get on, and since when; the longest first.
-- No parameters
-- Reads the whole table, which is small.
select convert(name using utf8mb4) as name, cast(date_format(failed_since, '%Y-%m-%dT%H:%i:%sZ') as char) as since
from {cursors}
where failed_since is not null
order by failed_since, name
