-- How many dead messages there are.
-- ?1 to ?8 the filter, see the fragment {asked}
-- Uses {name}_dead_idx.
select count(*) from {table} where {asked}
