-- Puts messages that this transaction has locked back to pending with all their attempts.
-- The rows' numbers
-- Uses the primary key.
update {table}{by_number}
set {set_replayed}
where {number} in ({items})
