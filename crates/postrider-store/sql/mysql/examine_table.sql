-- How the table and its key columns are made.
-- Schema or null for the connection's database, table
-- No index of ours.
select cast(made.row_format as char) as row_format, cast(coalesce(made.table_rows, 0) as signed) as row_count,
  cast(columns.column_name as char) as name, cast(columns.data_type as char) as type,
  cast(coalesce(columns.collation_name, '') as char) as collation
from information_schema.tables as made
join information_schema.columns as columns
  on columns.table_schema = made.table_schema and columns.table_name = made.table_name
where made.table_schema = coalesce(?, database()) and made.table_name = ?
  and columns.column_name in ('namespace', 'topic', 'key', 'dedupe_key')
