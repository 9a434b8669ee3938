-- Writes one message in the caller's transaction, and rings if a relay for it sleeps (see doorbell.rs).
-- $1 id, $2 namespace, $3 topic, $4 key, $5 tenant, $6 dedupe key, $7 payload text, $8 payload bytes, $9 headers text, $10 deliver at µs since 1970, $11 delay µs, $12 max attempts
-- Writes no row if the dedupe key was there already, by {name}_dedupe_idx; without a key that need not be looked for, and it costs.
insert into {table} ({insert_columns})
select {insert_values}
-- Always true. It stands here because a row that is returned costs the server more than both locks.
where (pg_try_advisory_xact_lock_shared(hashtextextended('{bell}', 0))
    and pg_try_advisory_xact_lock_shared(hashtextextended('{bell}:' || {given_namespace}, 0))
    or pg_notify('{channel}', '{bell}') is not null){unused}
{unless_duplicate}
