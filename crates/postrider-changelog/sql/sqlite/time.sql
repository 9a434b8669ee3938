-- The time in milliseconds since 1970.
-- No parameters
-- Uses no table.
select cast({now} / 1000 as text)
