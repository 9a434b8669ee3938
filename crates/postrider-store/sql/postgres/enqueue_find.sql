-- Finds the rows that already hold a dedupe key.
-- $1 namespaces, $2 topics, $3 dedupe keys, arrays of the same length
-- Uses {name}_dedupe_idx.
select given.position, {row.raw_id} as id
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as given(namespace, topic, dedupe_key, position)
join {table} as row
  on {row.namespace} = given.namespace and {row.topic} = given.topic and {row.dedupe_key} = given.dedupe_key
where {row.dedupe_key} is not null
