-- Counts messages that wait, run or are dead, by namespace, topic and state.
-- $1 namespaces or null for all, $2 tenant or null
-- Uses {name}_due_idx or {name}_lane_idx, {name}_lease_idx and {name}_finished_idx; reads no delivered row.
select namespace, topic, status, count(*) as messages,
       count(*) filter (where created_at > now() - interval '1 minute') as last_minute,
       count(*) filter (where next_attempt_at <= now()) as due,
       min(next_attempt_at) filter (where next_attempt_at <= now()) as oldest,
       now() as now
from {table}
where status = 'pending' and {in_scope}
group by namespace, topic, status
union all
select {tally} from {table} where status = 'processing' and {in_scope} group by namespace, topic, status
union all
select {tally} from {table} where status = 'dead' and {in_scope} group by namespace, topic, status
