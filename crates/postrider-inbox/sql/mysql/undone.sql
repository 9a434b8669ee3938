-- Whether a wait that is given up undoes its whole transaction: a row or none.
-- No parameters
-- Uses no table.
select cast(1 as signed), cast(0 as signed)
from dual
where @@innodb_rollback_on_timeout
