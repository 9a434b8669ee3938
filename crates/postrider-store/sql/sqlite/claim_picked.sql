-- Takes the rows that claim_fair.sql found and that fit.
-- ?4 now, ?6 worker, ?7 lease µs, ?9 the rows' numbers (a JSON array)
-- Finds rows by their numbers. In the same transaction, so that they are still due.
with picked(seq) as (select value from json_each(?9))
{take}
