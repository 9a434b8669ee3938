-- Gives rows up that have just been marked as failed in the same transaction, where the table's owner wants it in two steps.
-- ?1 now, ?2 the rows' numbers (a JSON array)
-- Finds rows by their numbers.
update {table}
set {set_entombed ?1}
where {number} in (select value from json_each(?2)) and +{pending}
