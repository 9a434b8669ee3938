-- A page of dead messages without their payloads, those that died first before the others.
-- $1 to $8 the filter, see the fragment {asked}, $9 and $10 time and id of the message to go on after, or null, $11 limit
-- Uses {name}_finished_idx, or {name}_pkey for a few ids.
select {record}
from {table}
where {asked}
  and ($9::timestamptz is null or ({died}, {raw_id}) > ($9::timestamptz, {raw $10::uuid}))
order by {died}, {raw_id}
limit $11::bigint
