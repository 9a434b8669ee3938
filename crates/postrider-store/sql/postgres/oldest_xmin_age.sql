-- For how long the oldest transaction of this database, open or prepared, has held back the cleaning of rows, in µs; zero if there is none.
-- Nothing
-- No index. Who may not see the sessions of other roles sees their own; since when a slot is not read is told from version 17 on.
select coalesce(max(extract(epoch from greatest(clock_timestamp() - since, interval '0')) * 1000000), 0)::bigint as micros
from (
  select xact_start as since from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and backend_type <> 'autovacuum worker'
    and (backend_xmin is not null or backend_xid is not null)
  union all
  select prepared from pg_prepared_xacts where database = current_database()
  union all
  select (to_jsonb(slot) ->> 'inactive_since')::timestamptz from pg_replication_slots as slot where slot.xmin is not null
) as holders
