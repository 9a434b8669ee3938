-- Finds the rows that already hold a dedupe key.
-- ?1 a JSON array of arrays: namespace, topic and dedupe key
-- Uses {name}_dedupe_idx. Answers positions, counted from 0, and ids.
select given.key, {row.id}
from json_each(?1) as given
cross join {table} as row
  on {row.namespace} = json_extract(given.value, '$[0]') and {row.topic} = json_extract(given.value, '$[1]')
  and {row.dedupe_key} = json_extract(given.value, '$[2]')
where {row.dedupe_key} is not null
