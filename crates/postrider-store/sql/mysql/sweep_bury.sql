-- Buries rows that this transaction has locked. The error comes first: what is set before it would be seen by it.
-- The rows' numbers
-- Uses the primary key.
update {table}{by_number}
set {set_swept}
where {number} in ({items})
