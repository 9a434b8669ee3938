-- The time in milliseconds since 1970.
-- No parameters
-- Uses no table.
select cast({micros_of} {now}) div 1000 as char)
