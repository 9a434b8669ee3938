-- Counts messages that wait, run or are dead, by namespace, topic and state.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 now, ?4 a minute ago
-- Uses {name}_due_idx or {name}_lane_idx, {name}_lease_idx and {name}_dead_idx; reads no delivered row.
select namespace, topic, status, count(*) as messages,
       count(*) filter (where created_at > ?4) as last_minute,
       count(*) filter (where next_attempt_at <= ?3) as due,
       min(next_attempt_at) filter (where next_attempt_at <= ?3) as oldest
from {table}
where status = 'pending' and {in_scope}
group by namespace, topic
union all
select {tally} from {table} where status = 'processing' and {in_scope} group by namespace, topic
union all
select {tally} from {table} where status = 'dead' and {in_scope} group by namespace, topic
