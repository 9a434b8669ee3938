-- Finds the rows that may be forgotten.
-- No parameters
-- Can be run again.
create index if not exists "{messages_name}_expires_idx" on {messages} (expires_at)
