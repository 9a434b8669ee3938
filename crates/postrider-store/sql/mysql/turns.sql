-- Fills in the turns that are missing, all of them after a restore without data.
-- Nothing
-- Run by each migration, also when no version is missing, but only if turns are: it waits for turns that producers have.
insert ignore into {turns} (slot)
with digit(n) as (
  select 0 union all select 1 union all select 2 union all select 3 union all select 4 union all select 5 union all select 6 union all select 7
  union all select 8 union all select 9 union all select 10 union all select 11 union all select 12 union all select 13 union all select 14 union all select 15)
select a.n * 4096 + b.n * 256 + c.n * 16 + d.n
from digit as a cross join digit as b cross join digit as c cross join digit as d
order by 1
