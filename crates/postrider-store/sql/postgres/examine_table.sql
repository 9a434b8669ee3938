-- How large and how clean the table is.
-- $1 schema, $2 table
-- No index.
select coalesce(counted.n_dead_tup, 0) as dead, coalesce(counted.n_live_tup, 0) as live,
  greatest(owned.reltuples::bigint, coalesce(counted.n_live_tup, 0)) as rows,
  coalesce('autovacuum_enabled=false' = any (owned.reloptions) or 'autovacuum_enabled=off' = any (owned.reloptions), false) as not_vacuumed, owned.relpersistence = 'u' as unlogged
from pg_class as owned
left join pg_stat_all_tables as counted on counted.relid = owned.oid
where owned.relname = $2::text and owned.relnamespace = (select oid from pg_namespace where nspname = $1::text)
