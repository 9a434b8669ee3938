-- Writes many messages in the caller's transaction, and rings once if a relay for one of them sleeps.
-- $1 to $12 as in enqueue_one.sql, each an array with one element per message
-- Answers the ids that were written; the others' dedupe keys were there already, by {name}_dedupe_idx.
with written as (
  insert into {table} ({insert_columns})
  select {insert_values}
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::bytea[], $9::text[], $10::bigint[], $11::bigint[], $12::int[])
    as given(id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, deliver_at, delay, max_attempts)
  {unless_duplicate}
  returning {raw_id} as id, {namespace} as namespace
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
