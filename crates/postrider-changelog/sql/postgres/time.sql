-- The time in milliseconds since 1970.
-- No parameters
-- Uses no table.
select floor(extract(epoch from clock_timestamp()) * 1000)::bigint::text
