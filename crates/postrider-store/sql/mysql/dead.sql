-- A page of dead messages without their payloads, those that died first before the others.
-- The scope, the filter (see the fragment {asked}), time of the message to go on after three times and its id, limit
-- Uses {name}_lease_idx.
select {record}
from {table} force index ({name}_lease_idx)
where status = 'dead' and {unleased}
  {in_scope}
  {asked}
  and (? is null or updated_at > timestampadd(microsecond, ?, {epoch}) or (updated_at = timestampadd(microsecond, ?, {epoch}) and id > ?))
order by updated_at, id
limit ?
