-- Replication slots that nobody reads, with what they hold back.
-- $1 how much of the log they may hold, in bytes
-- No index.
select slot_name::text as slot, slot_type as type, xmin is not null or catalog_xmin is not null as holds_rows,
  coalesce(case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) end, 0)::bigint as bytes
from pg_replication_slots
where not active
  and (xmin is not null
    or coalesce(case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) end, 0) >= $1::bigint)
order by bytes desc
limit 10
