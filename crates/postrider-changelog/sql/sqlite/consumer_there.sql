-- Whether there is a consumer: a row or none.
-- ?1 name
-- Uses the primary key.
select name
from {cursors}
where name = ?1
