-- Roles that work with the table and will be shown no row: they may log in, have privileges, and no policy holds for them.
-- $1 schema, $2 table, $3 the roles that get policies, $4 the names of our own policies,
-- $5 how many more sessions are of who asks
-- No index of ours. The owner is told only if it has other sessions, because it has privileges in any case.
select quote_ident(role.rolname) as role, sessions.now as sessions
from pg_class as owned
join pg_namespace as home on home.oid = owned.relnamespace
cross join pg_roles as role
cross join lateral (
  select greatest(count(*) - case when role.rolname = session_user then $5::bigint else 0 end, 0) as now from pg_stat_activity
  where usesysid = role.oid and datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend') as sessions
where home.nspname = $1::text and owned.relname = $2::text
  and role.rolcanlogin and not role.rolsuper and not role.rolbypassrls
  and (has_table_privilege(role.oid, owned.oid, 'select, insert, update, delete')
    or has_any_column_privilege(role.oid, owned.oid, 'select, insert, update'))
  and (sessions.now > 0 or not pg_has_role(role.oid, owned.relowner, 'usage'))
  and not exists (select from pg_roles as named where named.rolname = any ($3::text[]) and pg_has_role(role.oid, named.oid, 'usage'))
  and not exists (
    select from pg_policy
    where polrelid = owned.oid and polpermissive and polname <> all ($4::text[])
      and (0 = any (polroles) or exists (select from unnest(polroles) as held where pg_has_role(role.oid, held, 'usage'))))
order by 1
