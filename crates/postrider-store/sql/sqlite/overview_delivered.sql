-- Counts delivered messages by namespace and topic.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 nothing, ?4 a minute ago
-- Reads all delivered rows.
select {namespace}, {topic}, 'delivered', {tally} from {table} where {delivered} and {in_scope} group by {namespace}, {topic}
