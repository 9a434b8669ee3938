-- How many rows finished long ago.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 finished until, µs since 1970
-- Uses {name}_{finished}_idx.
select count(*)
from {table}
where status = '{finished}' and updated_at <= ?3
  and {in_scope}
