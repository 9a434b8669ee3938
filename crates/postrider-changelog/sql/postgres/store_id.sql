-- The id of this changelog.
-- No parameters
-- Uses the primary key.
select value
from {settings}
where key = 'store.id'
