-- How many rows finished long ago.
-- $1 namespaces or null for all, $2 tenant or null, $3 age µs
-- Uses {name}_finished_idx.
select count(*)
from {table}
where {finished} and {touched} <= now() - $3::bigint * interval '1 microsecond'
  and {in_scope}
