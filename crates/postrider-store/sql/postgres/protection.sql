-- How the table is protected, and which of some roles are not there.
-- $1 schema, $2 table, $3 roles
-- No index of ours. Answers one row, also where there is no table.
select owned.oid is not null as is_there, coalesce(owned.relrowsecurity, false) as enabled, coalesce(owned.relforcerowsecurity, false) as forced,
  array(select name from unnest($3::text[]) as name where not exists (select from pg_roles where rolname = name)) as missing,
  array(
    select conname || ' ' || pg_get_constraintdef(oid) from pg_constraint where conrelid = owned.oid and contype = 'c') as checks
from (select) as always
left join pg_class as owned
  on owned.relname = $2::text and owned.relnamespace = (select oid from pg_namespace where nspname = $1::text)
