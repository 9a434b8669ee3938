-- Counts messages that wait, run or are dead, by namespace, topic and state.
-- The scope three times
-- Uses {name}_lane_idx and {name}_lease_idx; reads no delivered row.
select {namespace}, {topic}, 'pending', count(*) as messages,
       count(case when {created_at} > timestampadd(minute, -1, {now}) then 1 end) as last_minute,
       count(case when {due} then 1 end) as due,
       timestampdiff(microsecond, min(case when {due} then {due_at} end), {now}) as oldest
from {table}{by_lane}
where {pending} {in_scope}
group by {namespace}, {topic}
union all
select {namespace}, {topic}, 'processing', {tally} from {table}{by_lease} where {processing} {in_scope} group by {namespace}, {topic}
union all
select {namespace}, {topic}, 'dead', {tally} from {table}{by_lease} where {dead} {in_scope} group by {namespace}, {topic}
