-- Deletes dead messages that dead_pick.sql found.
-- ?1 the rows' numbers (a JSON array)
-- Finds rows by their numbers.
delete from {table}
where {number} in (select value from json_each(?1)) and +{dead}
