-- What row security hides from the current role: to select (r), update (w) and delete (d).
-- $1 schema, $2 table
-- No index of ours. Answers no row where there is no table.
with here as (
  select owned.oid, me.oid as me, me.rolname
  from pg_class as owned
  join pg_namespace as place on place.oid = owned.relnamespace
  join pg_roles as me on me.rolname = current_user
  where place.nspname = $1::text and owned.relname = $2::text
),
-- The policies that hold for the role. Of one that asks a setting it matters whether the session has it.
held as (
  select polname, polpermissive as permissive, polcmd::text as command, sees, coalesce(sees, 'true') = 'true' and coalesce(writes, 'true') = 'true' as always,
    nullif(current_setting(substring(sees from 'current_setting\(''([^'']+)'''), true), '') is not null as asked
  from here
  join pg_policy on polrelid = here.oid
  cross join lateral (select pg_get_expr(polqual, polrelid) as sees, pg_get_expr(polwithcheck, polrelid) as writes) as expressions
  where 0 = any (polroles) or exists (select from unnest(polroles) as named where pg_has_role(here.me, named, 'usage'))
),
-- How much each of them shows in this session: 3 all, 2 what the session asks for, 1 some, 0 nothing.
shown as (
  select held.*, case
      when always then 3
      when asked then 2
      when sees ~ '^\(\(NULLIF\(current_setting\(''[^'']+''::text, true\), ''''::text\) IS NULL\) OR ' then 3
      when sees ~ '^\("?\w+"? = \(NULLIF\(current_setting\(''[^'']+''::text, true\), ''''::text\)\)::uuid\)$' or sees = 'false' then 0
      else 1
    end as much
  from held
),
verbs as (
  select verb,
    not exists (select from held where permissive and always and command in ('*', verb)) as uncovered,
    least(
      coalesce((select max(much) from shown where permissive and command in ('*', verb)), 0),
      (select min(much) from shown where not permissive and command in ('*', verb))) as much
  from unnest(array['r', 'w', 'd']) as verb
)
select quote_ident(here.rolname) as role, row_security_active(here.oid) as active,
  (select bool_or(uncovered) from verbs) as uncovered,
  array(select quote_ident(polname) from held where not permissive and not always and command in ('*', 'r', 'w', 'd') order by polname) as guards,
  (select min(much) from verbs where verb = 'r') as reads, (select min(much) from verbs) as changes,
  case when exists (select from pg_policy where polrelid = here.oid and polname = 'postrider_relay')
    then quote_ident(left('postrider_' || here.rolname, 63)) else 'postrider_relay' end as free_name
from here
