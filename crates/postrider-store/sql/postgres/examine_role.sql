-- What the role may do, and what row security does to it.
-- $1 schema, $2 table, $3 table of versions, $4 names of the functions
-- No index of ours.
select quote_ident(me.rolname) as role, me.rolsuper as superuser, me.rolbypassrls as bypasses,
  pg_has_role(me.oid, owned.relowner, 'usage') as owner,
  has_schema_privilege(place.oid, 'usage') as uses_schema,
  has_table_privilege(owned.oid, 'select') as selects,
  not exists (
    select from unnest(array['status', 'attempts', 'next_attempt_at', 'locked_by', 'locked_until', 'last_error', 'updated_at', 'delivered_at']) as name
    where not has_column_privilege(owned.oid, name, 'update')) as updates,
  has_table_privilege(owned.oid, 'delete') as deletes,
  has_any_column_privilege(owned.oid, 'insert') as inserts,
  not exists (
    select from pg_proc where pronamespace = place.oid and proname = any ($4::text[])
      and not has_function_privilege(oid, 'execute')) as executes,
  coalesce(has_table_privilege(versions.oid, 'select'), true) as reads_versions,
  owned.relrowsecurity as secured, owned.relforcerowsecurity as forced,
  (select count(*) from pg_policy where polrelid = owned.oid) as policies,
  array(
    select distinct format('%I.%I', seen_in.nspname, seen.relname)
    from pg_depend as link
    join pg_rewrite as rule on rule.oid = link.objid and link.classid = 'pg_rewrite'::regclass
    join pg_class as seen on seen.oid = rule.ev_class and seen.relkind = 'v'
    join pg_namespace as seen_in on seen_in.oid = seen.relnamespace
    join pg_roles as viewer on viewer.oid = seen.relowner
    where link.refobjid = owned.oid and link.refclassid = 'pg_class'::regclass
      and not coalesce('security_invoker=true' = any (seen.reloptions) or 'security_invoker=on' = any (seen.reloptions), false)
      and (viewer.rolsuper or viewer.rolbypassrls or (seen.relowner = owned.relowner and not owned.relforcerowsecurity))) as views
from pg_class as owned
join pg_namespace as place on place.oid = owned.relnamespace
join pg_roles as me on me.rolname = current_user
left join pg_class as versions on versions.relnamespace = place.oid and versions.relname = $3::text
where place.nspname = $1::text and owned.relname = $2::text
