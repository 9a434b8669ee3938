-- How many dead messages there are.
-- $1 to $8 the filter, see the fragment {asked}
-- Uses {name}_finished_idx, or {name}_pkey for a few ids.
select count(*) from {table} where {asked}
