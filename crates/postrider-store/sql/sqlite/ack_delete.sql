-- Deletes leased rows that were delivered; a row with a dedupe key stays, because a producer's late retry must find it.
-- now, unused, then number, id, worker and attempt of each; unbound ones are null and match nothing
-- Finds rows by number, or by {name}_id_idx. Followed by ack.sql for the rows that stay.
with moment(now) as (select ?),
given(seq, id, worker, attempt) as (values {items})
delete from {table}
where {number} in (
  select {row.number} from given cross join {table} as row
  where {found} and {fence} and {row.dedupe_key} is null)
returning {id}, {attempts}, {number}
