-- Finds those of the caller's own rows that an insert has written; the others had a dedupe key that was there already.
-- The rows' ids
-- Uses {name}_id_idx. Locks nothing: a transaction always sees its own rows, and a lock at REPEATABLE READ would cover the gap beside the row, where other producers want to write.
select {id}, {namespace}, {topic}, {dedupe_key}
from {table}{by_id}
where {raw_id} in ({items})
