-- Deletes rows that finished long ago as purge.sql does, for an operator, and notes it; answers how many.
-- $1 namespaces or null for all, $2 tenant or null, $3 age µs, $4 limit, $5 to $7 who did what, and what was asked for
-- Uses {name}_finished_idx, then the rows' addresses.
with {old},
deleted as (
  delete from {table} as row
  using picked
  where row.ctid = picked.ctid and {few} and {finished_row}
  returning 1
),
noted as (
  insert into {audit} (who, action, asked, messages)
  select $5::text, $6::text, $7::text::jsonb, count(*) from deleted having count(*) > 0
)
select count(*) from deleted
