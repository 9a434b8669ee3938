-- Finds the rows that already hold a dedupe key.
-- For each key: namespace, topic, dedupe key
-- Uses {name}_dedupe_idx. The locking form sees rows that were committed after the caller's snapshot.
select {id}, {namespace}, {topic}, {dedupe_key}
from {table}{by_dedupe_key}
where {items}
{lock}
