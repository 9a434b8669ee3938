-- How long until the next lease ends, µs.
-- Since µs where those that ended before are left out, the scope
-- Uses {name}_lease_idx.
select coalesce(timestampdiff(microsecond, {now}, {lease_end}), 0) as ends_in
from {table}{by_lease}
where {processing} and {locked} {lease}
  {in_scope}
order by {locked}
limit 1
