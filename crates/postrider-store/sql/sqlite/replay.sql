-- Puts dead rows back to pending with all their attempts, oldest first.
-- ?1 namespaces or null for all (a JSON array), ?2 tenant or null, ?3 topic or null, ?4 ids or null (a JSON array), ?5 limit, ?6 now
-- Uses {name}_dead_idx, then the rows' numbers.
update {table}
set status = 'pending', attempts = 0, next_attempt_at = ?6, updated_at = ?6
where seq in (
  select seq
  from {table}
  where status = 'dead'
    and {in_scope}
    and (?3 is null or topic = ?3)
    and (?4 is null or id in (select value from json_each(?4)))
  order by updated_at, seq
  limit ?5)
returning id
