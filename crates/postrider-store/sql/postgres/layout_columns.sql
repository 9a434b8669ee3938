-- The columns of a table with their types, as the catalog has them, and what the role may do with each.
-- $1 schema, $2 table
-- No index of ours.
select held.attname::text as name, format_type(held.atttypid, held.atttypmod) as type, base.typname::text as base,
  (select nspname::text from pg_namespace where oid = base.typnamespace) as base_schema, pg_type_is_visible(base.oid) as base_is_in_path,
  base.typtype = 'e' as is_enum, held.attnotnull or given.typnotnull as not_null,
  held.atthasdef or held.attidentity <> '' or held.attgenerated <> '' or given.typdefault is not null as has_default,
  held.attgenerated <> '' or held.attidentity = 'a' as computed,
  case when base.typname in ('varchar', 'bpchar') and greatest(held.atttypmod, given.typtypmod) > 4
    then greatest(held.atttypmod, given.typtypmod) - 4 end as length,
  case when held.attgenerated = '' then coalesce(pg_get_expr(usual.adbin, usual.adrelid), given.typdefault) end as usual,
  exists (
    select from pg_index
    where indrelid = owned.oid and indisprimary and indnkeyatts = 1 and indkey[0] = held.attnum) as is_key,
  array(select enumlabel::text from pg_enum where enumtypid = base.oid order by enumsortorder) as labels,
  array(
    select pg_get_constraintdef(oid) from pg_constraint
    where (conrelid = owned.oid and conkey = array[held.attnum] or contypid = given.oid) and contype = 'c') as checks,
  has_column_privilege(owned.oid, held.attnum, 'select') as selects,
  has_column_privilege(owned.oid, held.attnum, 'update') as updates
from pg_attribute as held
join pg_class as owned on owned.oid = held.attrelid
join pg_namespace as place on place.oid = owned.relnamespace
join pg_type as given on given.oid = held.atttypid
join pg_type as base on base.oid = coalesce(nullif(given.typbasetype, 0), given.oid)
left join pg_attrdef as usual on usual.adrelid = owned.oid and usual.adnum = held.attnum
where place.nspname = $1::text and owned.relname = $2::text and held.attnum > 0 and not held.attisdropped
order by held.attnum
