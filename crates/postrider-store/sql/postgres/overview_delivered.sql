-- Counts delivered messages by namespace and topic.
-- $1 namespaces or null for all, $2 tenant or null
-- Reads all delivered rows.
select {tally_of_delivered} from {table} where {delivered} and {in_scope} group by {namespace}, {topic}
