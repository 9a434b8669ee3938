-- Whether row-level security confines the application's role to one tenant, as far as the catalog tells. What counts is what the role
-- may become, not only what it inherits.
-- $1 schema, $2 table, $3 the role, $4 the policy's expression, $5 the constraint of dedupe keys, or null for any, and $6 its definition, $7 the setting,
-- $8 the changelog's table, $9 that of its settings, $10 that of its cursors, $11 that of the audit, $12 that of versions,
-- $13 expressions that confine as well, but fail on an empty setting
-- No index of ours. Answers no row where there is no table.
with recursive owned as (
  select home.oid as home, home.nspname, home.nspowner, held.oid, held.relowner, held.relrowsecurity, held.relforcerowsecurity
  from pg_class as held
  join pg_namespace as home on home.oid = held.relnamespace
  where home.nspname = $1::text and held.relname = $2::text
),
base as (select datname, datdba from pg_database where datname = current_database()),
app as (select * from pg_roles where rolname = $3::text),
reach as (
  select other.oid, other.rolname, other.oid = app.oid as itself,
    case
      when other.rolsuper then 'is a superuser'
      when other.rolbypassrls then 'passes row security by'
      when other.oid = owned.relowner then 'owns the table'
      when other.oid = owned.nspowner then 'owns the schema'
      when other.oid = base.datdba then 'owns the database'
      when other.rolreplication then 'may read the log of all changes (REPLICATION)'
      when other.rolcreaterole and current_setting('server_version_num')::int < 160000 then 'may give itself other roles (CREATEROLE)'
      when other.rolname in ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program')
        then 'reaches the files of the server'
    end as power
  from app cross join owned cross join base
  join pg_roles as other on pg_has_role(app.oid, other.oid, 'member')
),
-- A role with power is told as such; what else it may do would only repeat that.
holders as (select oid, rolname from reach where itself or power is null),
things as (
  select 'table' as what, owned.oid, verb, verb in ('references', 'update') as by_column, false as is_sequence
  from owned cross join unnest(array['truncate', 'references', 'trigger', 'update', 'delete', 'select']) as verb
  union all
  select more.what, thing.oid, verb, verb in ('select', 'insert', 'update', 'references'), false
  from owned
  join pg_class as thing on thing.relnamespace = owned.home
  join (values
    ($8::text, 'changelog', array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']),
    ($9::text, 'settings', array['insert', 'update', 'delete', 'truncate', 'trigger']),
    ($10::text, 'cursors', array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']),
    ($11::text, 'audit', array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']),
    ($12::text, 'versions', array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger'])) as more(name, what, verbs)
    on thing.relname = more.name
  cross join unnest(more.verbs) as verb
  union all
  -- The numbers of our tables' columns.
  select 'sequence', numbers.oid, verb, false, true
  from owned
  join pg_class as counted on counted.oid = owned.oid or (counted.relnamespace = owned.home and counted.relname = $11::text)
  join pg_depend as link on link.refobjid = counted.oid and link.refclassid = 'pg_class'::regclass
    and link.classid = 'pg_class'::regclass and link.deptype in ('a', 'i')
  join pg_class as numbers on numbers.oid = link.objid and numbers.relkind = 'S'
  cross join unnest(array['usage', 'select', 'update']) as verb
),
-- Tables that the outbox inherits from, and that inherit from it: who reads one of those meets its policies and not ours.
above(oid) as (
  select oid from owned
  union
  select inhparent from above join pg_inherits on inhrelid = above.oid
),
below(oid) as (
  select oid from owned
  union
  select inhrelid from below join pg_inherits on inhparent = below.oid
),
-- Functions that name the table and run with the rights of their owners, and whether row security hides nothing from those.
definers as (
  select called.oid::regprocedure::text as name,
    definer.rolsuper or definer.rolbypassrls or (definer.oid = owned.relowner and not owned.relforcerowsecurity)
      or exists (
        select from pg_policy
        where polrelid = owned.oid and polpermissive and pg_get_expr(coalesce(polqual, polwithcheck), polrelid) = 'true'
          and (0 = any (polroles) or exists (select from unnest(polroles) as named where pg_has_role(definer.oid, named, 'usage')))) as sees_all
  from app
  cross join owned
  join pg_proc as called on called.prosecdef and called.proowner <> app.oid
  join pg_roles as definer on definer.oid = called.proowner
  where position(lower($2::text) in lower(case when called.prosecdef and called.prokind <> 'a' then pg_get_functiondef(called.oid) end)) > 0
    and exists (select from holders where has_function_privilege(holders.oid, called.oid, 'execute'))
)
select quote_ident($3::text) as role, app.oid is not null as is_there,
  coalesce(app.rolsuper, false) as superuser, coalesce(app.rolbypassrls, false) as bypasses,
  coalesce(app.rolreplication, false) as replicates,
  coalesce(app.rolcreaterole and current_setting('server_version_num')::int < 160000, false) as creates_roles,
  coalesce(owned.relowner = app.oid, false) as owns, coalesce(owned.nspowner = app.oid, false) as owns_schema,
  coalesce(base.datdba = app.oid, false) as owns_database,
  quote_ident(owned.nspname) as schema, quote_ident(base.datname) as database, owned.relowner::regrole::text as owner,
  owned.relrowsecurity as secured, owned.relforcerowsecurity as forced,
  array(select quote_ident(rolname) from reach where not itself and power is not null order by rolname) as becomes,
  array(select power from reach where not itself and power is not null order by rolname) as powers,
  exists (
    select from pg_policy
    where polrelid = owned.oid and polpermissive and polcmd in ('*', 'a')
      and (0 = any (polroles) or exists (select from unnest(polroles) as named where pg_has_role(app.oid, named, 'usage')))) as enqueues,
  -- Policies that hold for the role, itself or by a membership, and are not the one that confines it.
  coalesce((
    select jsonb_agg(jsonb_build_object('name', polname, 'itself', itself, 'by', lenders, 'shared', shared, 'strict', strict) order by polname)
    from (
      select polname, 0 = any (polroles) or app.oid = any (polroles) as itself,
        array(
          select quote_ident(reach.rolname)
          from pg_auth_members as lent
          join reach on reach.oid = lent.roleid and reach.power is null
          where lent.member = app.oid and exists (select from unnest(polroles) as named where pg_has_role(reach.oid, named, 'member'))
          order by 1) as lenders,
        exists (select from unnest(polroles) as named where named not in (0, app.oid)) as shared,
        (polcmd = 'a' or pg_get_expr(polqual, polrelid) = any ($4::text || $13::text[]))
          and (polcmd <> 'a' and polwithcheck is null or pg_get_expr(polwithcheck, polrelid) = any ($4::text || $13::text[])) as strict
      from pg_policy
      where polrelid = owned.oid and polpermissive
        and (polcmd <> 'a' and pg_get_expr(polqual, polrelid) is distinct from $4::text
          or (polcmd = 'a' or polwithcheck is not null) and pg_get_expr(polwithcheck, polrelid) is distinct from $4::text)) as held
    where itself or lenders <> '{}'), '[]')::text as wider,
  array(
    with recursive reaches(oid) as (
      select owned.oid
      union
      select rule.ev_class
      from reaches
      join pg_depend as link
        on link.refobjid = reaches.oid and link.refclassid = 'pg_class'::regclass and link.classid = 'pg_rewrite'::regclass
      join pg_rewrite as rule on rule.oid = link.objid
    )
    select format('%s %I.%I', case when seen.relkind = 'm' then 'materialized view' else 'view' end, place.nspname, seen.relname)
    from reaches
    join pg_class as seen on seen.oid = reaches.oid and seen.relowner <> app.oid
    join pg_namespace as place on place.oid = seen.relnamespace
    where (seen.relkind = 'm'
        or seen.relkind = 'v' and not exists (
          select from pg_options_to_table(seen.reloptions) where option_name = 'security_invoker' and option_value::boolean))
      and exists (
        select from holders
        where has_table_privilege(holders.oid, seen.oid, 'select, insert, update, delete')
          or has_any_column_privilege(holders.oid, seen.oid, 'select, insert, update'))
    order by 1) as views,
  array(select name from definers where sees_all order by 1) as mighty,
  array(select name from definers where not sees_all order by 1) as functions,
  array(
    select format('%I.%I', place.nspname, kin.relname)
    from (select oid from above union select oid from below) as related
    join pg_class as kin on kin.oid = related.oid and kin.oid <> owned.oid
    join pg_namespace as place on place.oid = kin.relnamespace
    where exists (
      select from holders
      where has_table_privilege(holders.oid, kin.oid, 'select, insert, update, delete, truncate')
        or has_any_column_privilege(holders.oid, kin.oid, 'select, insert, update'))
    order by 1) as kin,
  coalesce((
    select jsonb_agg(jsonb_build_array(what, oid::regclass::text, verb, holder) order by what, oid, verb, holder)
    from (
      select things.what, things.oid, things.verb, quote_ident(holders.rolname) as holder
      from holders cross join things
      where case
          when things.is_sequence then has_sequence_privilege(holders.oid, things.oid, things.verb)
          else has_table_privilege(holders.oid, things.oid, things.verb)
            or case when things.by_column then has_any_column_privilege(holders.oid, things.oid, things.verb) else false end
        end) as privileges), '[]')::text as held,
  nullif(current_setting($7::text, true), '') is not null as preset,
  defaults.name as defaulted, defaults.resets,
  exists (
    select from pg_constraint
    where conrelid = owned.oid and ($5::text is null or conname = $5::text) and convalidated
      and pg_get_constraintdef(oid) = $6::text) as keys_checked
from owned
cross join base
left join app on true
cross join lateral (
  select min(quote_ident(split_part(given, '=', 1))) as name,
    string_agg(
      case
        when setdatabase = 0 and setrole = 0 then 'alter role all'
        when setrole = 0 then format('alter database %I', base.datname)
        when setdatabase = 0 then format('alter role %I', app.rolname)
        else format('alter role %I in database %I', app.rolname, base.datname)
      end || ' reset ' || quote_ident(split_part(given, '=', 1)), '; ' order by setdatabase, setrole) as resets
  from pg_db_role_setting, unnest(setconfig) as given
  where setrole in (0, app.oid) and setdatabase in (0, (select oid from pg_database where datname = base.datname))
    and lower(split_part(given, '=', 1)) = lower($7::text)) as defaults
