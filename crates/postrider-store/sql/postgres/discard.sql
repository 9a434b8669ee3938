-- Deletes dead messages, those that died first, and notes it.
-- $1 to $8 the filter, see the fragment {asked}, $9 limit, $10 to $12 who did what, and what was asked for
-- Uses {name}_finished_idx, or {name}_pkey for a few ids, then the rows' addresses.
with {picked},
changed as (
  delete from {table} as row
  using picked
  where row.ctid = picked.ctid and {few} and {row.dead}
  returning {row.id} as id, picked.died
),
{noted}
select id from changed order by died, id
