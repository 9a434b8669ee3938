-- Writes many messages without dedupe keys in the caller's transaction, and rings once if a relay for one of them sleeps.
-- $1 to $12 as in enqueue_one.sql, each an array with one element per message
-- No index; answers nothing, because rows that are returned cost the server a tenth more. All are written, or none.
insert into {table} ({insert_columns})
select {insert_values}
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::bytea[], $9::text[], $10::bigint[], $11::bigint[], $12::int[])
  as given(id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, deliver_at, delay, max_attempts)
-- Always true, and asked once.
where (
  select bool_and(case when pg_try_advisory_xact_lock_shared(hashtextextended('{bell}:' || namespace, 0)) then true else false end)
     and pg_try_advisory_xact_lock_shared(hashtextextended('{bell}', 0))
      or pg_notify('{channel}', '{bell}') is not null
  from (select distinct {given_namespace} as namespace from unnest($2::text[]) as given(namespace)) as namespaces
)
