-- Takes the sleeper's locks; for each says whether it is ours now, or another sleeping relay has it.
-- $1 the bells' names
-- Session level: only on a connection of one's own (see doorbell.rs).
select name, got,
  not got and exists (
    select from pg_locks
    where locktype = 'advisory' and mode = 'ExclusiveLock' and granted and objsubid = 1
      and database = (select oid from pg_database where datname = current_database())
      and classid::bigint = (hash >> 32) & 4294967295 and objid::bigint = hash & 4294967295) as held_by_relay
from (
  select name, hash, pg_try_advisory_lock(hash) as got
  from (select name, hashtextextended(name, 0) as hash from unnest($1::text[]) as name offset 0) as bells
  offset 0) as tried
