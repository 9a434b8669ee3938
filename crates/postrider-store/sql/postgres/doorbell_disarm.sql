-- Gives the sleeper's locks back.
-- $1 the names of the bells that are ours
-- Session level: only on a connection of one's own (see doorbell.rs).
select pg_advisory_unlock(hashtextextended(name, 0)) from unnest($1::text[]) as name
