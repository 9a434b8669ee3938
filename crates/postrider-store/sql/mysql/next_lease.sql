-- How long until the next lease ends, µs.
-- Since µs where those that ended before are left out, the scope
-- Uses {name}_lease_idx.
select coalesce(timestampdiff(microsecond, {now}, locked_until), 0) as ends_in
from {table} force index ({name}_lease_idx)
where status = 'processing' and locked_until {lease}
  {in_scope}
order by locked_until
limit 1
