-- Counts delivered messages by namespace and topic.
-- The scope
-- Reads all delivered rows.
select {tally} from {table} force index ({name}_lane_idx) where status = 'delivered' {in_scope} group by namespace, topic, status
