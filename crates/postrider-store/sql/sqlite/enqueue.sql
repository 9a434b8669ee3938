-- Writes messages in the caller's transaction.
-- For each: id, namespace, topic, key, tenant, dedupe key, payload text, payload bytes, headers text, due at, max attempts, created at, updated at; times in µs since 1970
-- A row with a delay is updated one microsecond after it was created, so that it can be told from one with a time of the day (see clock.rs).
-- Answers the ids that were written; the others' dedupe keys were there already, by {name}_dedupe_idx.
insert into {table}
  (id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts, created_at, updated_at)
values {items}
{unless_duplicate}
returning id
