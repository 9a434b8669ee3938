-- How many rows finished long ago.
-- $1 namespaces or null for all, $2 tenant or null, $3 age µs
-- Uses {name}_finished_idx.
select count(*)
from {table}
where status = '{finished}' and updated_at <= now() - $3::bigint * interval '1 microsecond'
  and {in_scope}
