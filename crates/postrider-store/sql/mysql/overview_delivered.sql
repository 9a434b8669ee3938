-- Counts delivered messages by namespace and topic.
-- The scope
-- Reads all delivered rows.
select {namespace}, {topic}, 'delivered', {tally} from {table}{by_lane} where {delivered} {in_scope} group by {namespace}, {topic}
