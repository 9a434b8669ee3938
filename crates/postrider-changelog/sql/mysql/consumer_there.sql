-- Whether there is a consumer: a row or none.
-- Name
-- Uses the primary key.
select name
from {cursors}
where name = ?
