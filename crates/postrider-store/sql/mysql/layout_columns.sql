-- The columns of a table with their types, as the catalog has them, and what the account may do with each.
-- Schema or null for the connection's database, table
-- No index of ours.
select cast(column_name as char) as name, cast(column_type as char) as type, cast(data_type as char) as base,
  cast(least(coalesce(character_maximum_length, 0), 2147483647) as signed) as length,
  cast(is_nullable = 'NO' as signed) as not_null,
  cast(column_default is not null or extra like '%auto_increment%' or extra like '%GENERATED%' as signed) as has_default,
  cast(coalesce(generation_expression, '') <> '' as signed) as computed, cast(column_default as char) as usual, cast(lower(privileges) as char) as privileges
from information_schema.columns
where table_schema = coalesce(?, database()) and table_name = ?
order by ordinal_position
