-- Puts dead messages that dead_pick.sql found back to pending with all their attempts.
-- ?1 the rows' numbers (a JSON array), ?2 now
-- Finds rows by their numbers.
update {table}
set {set_replayed ?2}
where {number} in (select value from json_each(?1)) and +{dead}
