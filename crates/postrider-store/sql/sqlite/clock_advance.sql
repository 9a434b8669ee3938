-- Notes what time it is, and which row is the newest.
-- ?1 now, µs since 1970, given to every statement of a transaction
-- Finds its only row by its key, and the newest one by walking backwards.
update {clock} set seen = ?1, newest = (select coalesce(max({number}), 0) from {table})
