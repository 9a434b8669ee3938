-- Fills in the turns that are missing, all of them after a restore without data.
-- Nothing
-- Run by each migration, also when no version is missing, but only if turns are: it waits for turns that producers have.
insert ignore into {turns} (slot)
with digit(n) as (
  select 0 union all select 1 union all select 2 union all select 3 union all select 4 union all select 5 union all select 6 union all select 7)
select e.n * 4096 + a.n * 512 + b.n * 64 + c.n * 8 + d.n
from (select 0 as n union all select 1) as e cross join digit as a cross join digit as b cross join digit as c cross join digit as d
