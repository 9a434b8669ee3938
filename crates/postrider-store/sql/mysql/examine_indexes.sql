-- The table's indexes with their columns in order.
-- Schema or null for the connection's database, table
-- No index of ours.
select cast(index_name as char) as name, cast(min(non_unique) as signed) as non_unique,
  cast(group_concat(column_name order by seq_in_index separator ',') as char) as columns
from information_schema.statistics
where table_schema = coalesce(?, database()) and table_name = ?
group by index_name
