-- The table's indexes as the catalog has them.
-- $1 schema, $2 table
-- No index of ours.
select index.relname::text as name, held.indisvalid and held.indisready and held.indislive as usable, held.indisunique as is_unique,
  array(select pg_get_indexdef(held.indexrelid, position::int, true)
        from generate_series(1, held.indnkeyatts) as position order by position) as columns,
  pg_get_expr(held.indpred, held.indrelid) as predicate
from pg_index as held
join pg_class as index on index.oid = held.indexrelid
join pg_class as owner on owner.oid = held.indrelid
where owner.relname = $2::text and owner.relnamespace = (select oid from pg_namespace where nspname = $1::text)
