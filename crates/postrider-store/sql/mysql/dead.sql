-- A page of dead messages without their payloads, those that died first before the others.
-- The scope, the filter (see the fragment {asked}), time of the message to go on after three times and its id, limit
-- Uses {name}_lease_idx.
select {record}
from {table}{by_lease}
where {dead} and {unleased}
  {in_scope}
  {asked}
  and (? is null or {touched} > timestampadd(microsecond, ?, {epoch}) or ({touched} = timestampadd(microsecond, ?, {epoch}) and {listed_id} > {raw ?}))
order by {touched}, {listed_id}
limit ?
