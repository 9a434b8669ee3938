-- Notes an attempt, unless it or a newer one was seen.
-- $1 consumer, $2 event, $3 how often replayed, $4 number of the attempt, $5 how long to keep it in µs
-- Uses the primary key.
insert into {attempts} as seen (consumer, event_id, replayed, attempt, expires_at)
values ($1::text, $2::uuid, $3::bigint, $4::bigint, now() + $5::bigint * interval '1 microsecond')
on conflict (consumer, event_id) do update
set replayed = excluded.replayed, attempt = excluded.attempt, expires_at = excluded.expires_at
where (excluded.replayed, excluded.attempt) > (seen.replayed, seen.attempt)
