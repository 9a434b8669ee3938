-- Finds the rows that may be forgotten.
-- No parameters
-- Can be run again.
create index if not exists "{attempts_name}_expires_idx" on {attempts} (expires_at)
