-- A table that may be somebody else's, and what the role may do with it.
-- $1 schema, $2 table, $3 table of audits
-- No index of ours.
select quote_ident(current_user) as role,
  case when owned.relkind = 'p' then 'partitioned' when owned.relkind <> 'r' then 'no table'
    when exists (select from pg_inherits where inhparent = owned.oid) then 'inherited from' end as unfit,
  greatest(owned.reltuples::bigint, 0) as rows,
  has_schema_privilege(place.oid, 'usage') as uses_schema,
  has_table_privilege(owned.oid, 'delete') as deletes, owned.relpersistence = 'u' as unlogged,
  exists (select from pg_class where relnamespace = place.oid and relname = $3::text) as audited
from pg_class as owned
join pg_namespace as place on place.oid = owned.relnamespace
where place.nspname = $1::text and owned.relname = $2::text and owned.relkind in ('r', 'p', 'v', 'm', 'f')
