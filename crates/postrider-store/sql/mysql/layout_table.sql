-- A table that may be somebody else's, and who looks.
-- Schema or null for the connection's database, table
-- No index of ours.
select cast(table_schema as char) as place,
  case when table_type not in ('BASE TABLE', 'SYSTEM VERSIONED') then 'no table' end as unfit, cast(coalesce(engine, '') as char) as engine,
  cast(coalesce(table_rows, 0) as signed) as row_count, cast(current_user() as char) as account
from information_schema.tables
where table_schema = coalesce(?, database()) and table_name = ?
