-- The table's policies.
-- $1 schema, $2 table
-- No index of ours.
select polname::text as name, polpermissive as permissive, polcmd::text as command,
  array(select rolname::text from pg_roles where oid = any (polroles) order by rolname) as roles,
  pg_get_expr(polqual, polrelid) as sees, pg_get_expr(polwithcheck, polrelid) as writes
from pg_policy
join pg_class as owned on owned.oid = polrelid
where owned.relname = $2::text and owned.relnamespace = (select oid from pg_namespace where nspname = $1::text)
