-- Writes messages in the caller's transaction.
-- For each what the table has a column for of: id, namespace, topic, key, tenant, dedupe key, payload text, payload bytes, headers text, due at, max attempts, created at, updated at; times in µs since 1970
-- A row with a delay is updated one microsecond after it was created, so that it can be told from one with a time of the day (see clock.rs).
-- Answers the ids that were written; the others' dedupe keys were there already, by {name}_dedupe_idx.
insert into {table}
  ({insert_columns})
values {items}
{unless_duplicate}
returning {id}
