-- Transactions of this database that are open for longer than a limit, prepared ones too; never what they run.
-- $1 the limit in µs
-- No index.
select 'open' as kind, pid::text as name, coalesce(state, 'unknown') as state, application_name as application,
  extract(epoch from now() - xact_start)::bigint as seconds
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
  and backend_type in ('client backend', 'background worker', 'walsender') and (backend_xmin is not null or backend_xid is not null)
  and clock_timestamp() - xact_start >= $1::bigint * interval '1 microsecond'
union all
select 'prepared', gid, 'prepared', '', extract(epoch from now() - prepared)::bigint
from pg_prepared_xacts
where database = current_database() and clock_timestamp() - prepared >= $1::bigint * interval '1 microsecond'
order by seconds desc
limit 10
