-- Counts what waits, runs and is dead, and says for how long the oldest due row has been due, µs.
-- The scope three times
-- Uses {name}_due_idx and {name}_lease_idx.
select
  waiting.pending,
  waiting.due,
  running.processing,
  given_up.dead,
  waiting.oldest
from (
  select count(*) as pending,
         count(case when {due} then 1 end) as due,
         timestampdiff(microsecond, min(case when {due} then {due_at} end), {now}) as oldest
  from {table}{by_due}
  where {pending} {in_scope}) as waiting
cross join (
  select count(*) as processing from {table}{by_lease} where {processing} {in_scope}) as running
cross join (
  select count(*) as dead from {table}{by_lease} where {dead} {in_scope}) as given_up
