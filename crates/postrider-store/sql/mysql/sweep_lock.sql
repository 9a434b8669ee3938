-- Locks the rows that a sweep found, if they are still to be buried and nobody else has them.
-- The rows' numbers, max attempts
-- Uses the primary key.
select {row_key}, {id}
from {table}{by_number}
where {number} in ({items}) and {spent}
  and (({processing} and {lease_over}) or ({pending} and {due}))
for update skip locked
