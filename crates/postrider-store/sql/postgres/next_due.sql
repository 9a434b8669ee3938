-- When the next row becomes eligible by the passing of time alone.
-- $1 namespaces or null for all, $2 tenant or null
-- Uses {name}_due_idx and {name}_lease_idx.
with recursive {namespaces}
select least(
  (select min(row.due_at)
   from (select namespace from namespaces union all select unnest($1::text[])) as wanted(namespace), lateral (
     select {due_at} as due_at from {table}
     where {pending} and {namespace} = wanted.namespace and ($2::uuid is null or {tenant_id} = $2::uuid)
     order by {due_at} limit 1) as row),
  (select {lease_end} from {table} where {processing} and {in_scope} order by {locked} limit 1)
) as due_at, now() as now
