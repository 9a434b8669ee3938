-- Counts messages that wait, run or are dead, by namespace, topic and state.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 now, ?4 a minute ago
-- Uses {name}_due_idx or {name}_lane_idx, {name}_lease_idx and {name}_dead_idx; reads no delivered row.
select {namespace}, {topic}, 'pending', count(*) as messages,
       count(*) filter (where {created_at} > ?4) as last_minute,
       count(*) filter (where {due ?3}) as due,
       min({due_at}) filter (where {due ?3}) as oldest
from {table}
where {pending} and {in_scope}
group by {namespace}, {topic}
union all
select {namespace}, {topic}, 'processing', {tally} from {table} where {processing} and {in_scope} group by {namespace}, {topic}
union all
select {namespace}, {topic}, 'dead', {tally} from {table} where {dead} and {in_scope} group by {namespace}, {topic}
