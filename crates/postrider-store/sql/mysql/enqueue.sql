-- Writes messages in the caller's transaction.
-- For each message what the table has a column for of: id, namespace, topic, key, tenant, dedupe key, payload, payload bytes, headers, deliver at µs since 1970, delay µs, max attempts
-- Where a dedupe key is there already, by {name}_dedupe_idx, the second form changes nothing, after waiting for whoever wrote it. `insert ignore` would hide other errors too.
insert into {table}
  ({insert_columns})
values
  {items}
{unless_duplicate}
