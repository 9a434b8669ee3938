-- Buries the rows that sweep_look.sql found, where they are still as they were.
-- ?1 now, ?2 max attempts, ?3 the rows' numbers (a JSON array)
-- Finds rows by their numbers.
update {table}
set {set_swept ?1}
where {number} in (select value from json_each(?3))
  and ({processing} and {lease_over ?1} or {pending} and {due ?1})
  and {spent ?2}
returning {id}, {number}
