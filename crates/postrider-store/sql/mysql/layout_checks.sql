-- The conditions that a table has on its rows.
-- Schema or null for the connection's database, table
-- No index of ours.
select cast(conditions.check_clause as char)
from information_schema.table_constraints as held
join information_schema.check_constraints as conditions
  on conditions.constraint_schema = held.constraint_schema and conditions.constraint_name = held.constraint_name
where held.table_schema = coalesce(?, database()) and held.table_name = ? and held.constraint_type = 'CHECK'
