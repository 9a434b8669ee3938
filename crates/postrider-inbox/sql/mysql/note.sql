-- Notes an attempt, unless it or a newer one was seen. Assignments are made from left to right, each with what is there by then.
-- Consumer, event, how often replayed, number of the attempt, how long to keep it in µs
-- Uses the primary key.
insert into {attempts} (consumer, event_id, replayed, attempt, expires_at)
values (?, ?, ?, ?, timestampadd(microsecond, ?, utc_timestamp(6)))
on duplicate key update
  expires_at = if((values(replayed), values(attempt)) > (replayed, attempt), values(expires_at), expires_at),
  attempt = if((values(replayed), values(attempt)) > (replayed, attempt), values(attempt), attempt),
  replayed = greatest(replayed, values(replayed))
