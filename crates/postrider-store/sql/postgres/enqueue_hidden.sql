-- Asked when rows hold dedupe keys and cannot be found: whether row security hides them from the caller.
-- $1 namespaces, $2 topics, $3 dedupe keys, as in enqueue_find.sql
-- No index; answers one row, or none if nothing is hidden.
select 1::bigint as position, gen_random_uuid() as id
where row_security_active('{table}') and ($1::text[], $2::text[], $3::text[]) is not null
