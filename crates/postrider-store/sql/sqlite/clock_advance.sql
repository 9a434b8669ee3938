-- Notes what time it is.
-- ?1 now, µs since 1970, given to every statement of a transaction
-- Finds its only row by its key.
update {clock} set seen = ?1
