-- Whether there is a consumer: a row or none.
-- Name
-- Uses the primary key.
select convert(name using utf8mb4)
from {cursors}
where name = ?
