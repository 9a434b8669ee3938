-- Gives rows up that have just been marked as failed in the same transaction, where the table's owner wants it in two steps.
-- The rows' numbers
-- Uses the primary key.
update {table}{by_number}
set {set_entombed}
where {number} in ({items}) and {pending}
