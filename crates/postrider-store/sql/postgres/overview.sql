-- Counts messages that wait, run or are dead, by namespace, topic and state.
-- $1 namespaces or null for all, $2 tenant or null
-- Uses {name}_due_idx or {name}_lane_idx, {name}_lease_idx and {name}_finished_idx; reads no delivered row.
select {namespace}::text, {topic}::text, 'pending'::text, count(*) as messages,
       count(*) filter (where {created_at} > now() - interval '1 minute') as last_minute,
       count(*) filter (where {due_or_undated}) as due,
       (min({due_at}) filter (where {due_or_undated}))::timestamptz as oldest,
       now() as now
from {table}
where {pending} and {in_scope}
group by {namespace}, {topic}
union all
select {tally_of_processing} from {table} where {processing} and {in_scope} group by {namespace}, {topic}
union all
select {tally_of_dead} from {table} where {dead} and {in_scope} group by {namespace}, {topic}
