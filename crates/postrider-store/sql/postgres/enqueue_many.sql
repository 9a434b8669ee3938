-- Writes many messages in the caller's transaction, and rings once if a relay for one of them sleeps.
-- $1 to $12 as in enqueue_one.sql, each an array with one element per message
-- Answers the ids that were written; the others' dedupe keys were there already, by {name}_dedupe_idx.
with written as (
  insert into {table}
    (id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts)
  select
    id, namespace, topic, key, tenant_id, dedupe_key, payload::jsonb, payload_bytes, headers::jsonb,
    coalesce(timestamptz 'epoch' + deliver_at * interval '1 microsecond', now() + delay * interval '1 microsecond', now()),
    max_attempts
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::bytea[], $9::text[], $10::bigint[], $11::bigint[], $12::int[])
    as given(id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, deliver_at, delay, max_attempts)
  {unless_duplicate}
  returning id, namespace
),
bells as materialized (
  select bool_and(case when pg_try_advisory_xact_lock_shared(hashtextextended('{bell}:' || namespace, 0)) then true else false end)
     and pg_try_advisory_xact_lock_shared(hashtextextended('{bell}', 0)) as silent
  from (select distinct namespace from written) as namespaces
),
rung as materialized (
  select pg_notify('{channel}', '{bell}') from bells where not silent
)
select written.id, exists (select from rung) as rang from written
