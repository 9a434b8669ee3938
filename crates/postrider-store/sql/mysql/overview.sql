-- Counts messages that wait, run or are dead, by namespace, topic and state.
-- The scope three times
-- Uses {name}_lane_idx and {name}_lease_idx; reads no delivered row.
select namespace, topic, status, count(*) as messages,
       count(case when created_at > timestampadd(minute, -1, {now}) then 1 end) as last_minute,
       count(case when next_attempt_at <= {now} then 1 end) as due,
       timestampdiff(microsecond, min(case when next_attempt_at <= {now} then next_attempt_at end), {now}) as oldest
from {table} force index ({name}_lane_idx)
where status = 'pending' {in_scope}
group by namespace, topic, status
union all
select {tally} from {table} force index ({name}_lease_idx) where status = 'processing' {in_scope} group by namespace, topic, status
union all
select {tally} from {table} force index ({name}_lease_idx) where status = 'dead' {in_scope} group by namespace, topic, status
