-- Writes one message in the caller's transaction, and rings if a relay for it sleeps (see doorbell.rs).
-- $1 id, $2 namespace, $3 topic, $4 key, $5 tenant, $6 dedupe key, $7 payload text, $8 payload bytes, $9 headers text, $10 deliver at µs since 1970, $11 delay µs, $12 max attempts
-- Answers the id, or no row if the dedupe key was there already, by {name}_dedupe_idx; without a key that need not be looked for, and it costs.
insert into {table}
  (id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts)
values
  ($1::uuid, $2::text, $3::text, $4::text, $5::uuid, $6::text, $7::text::jsonb, $8::bytea, $9::text::jsonb,
   coalesce(timestamptz 'epoch' + $10::bigint * interval '1 microsecond', now() + $11::bigint * interval '1 microsecond', now()),
   $12::int)
{unless_duplicate}
returning id, case
  when pg_try_advisory_xact_lock_shared(hashtextextended('{bell}', 0))
   and pg_try_advisory_xact_lock_shared(hashtextextended('{bell}:' || namespace, 0)) then false
  else pg_notify('{channel}', '{bell}') is null
end as rang
