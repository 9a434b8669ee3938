-- A page of dead messages without their payloads, those that died first before the others.
-- ?1 to ?8 the filter, see the fragment {asked}, ?9 and ?10 time and id of the message to go on after, or null, ?11 limit
-- Uses {name}_dead_idx.
select {record}
from {table}
where {asked}
  and (?9 is null or ({died}, {listed_id}) > (?9, ?10))
order by {died}, {listed_id}
limit ?11
