-- After the clock was set back: leases and back-offs keep what is left of them, and what was due when it was written is due.
-- ?1 now, ?2 the difference, µs
-- Reads {name}_lease_idx and the waiting rows. Times that a producer asked for are times of the day and stay.
update {table} set locked_until = locked_until - ?2 where status = 'processing';
update {table} set
  next_attempt_at = case when next_attempt_at = created_at then ?1 else max(?1, next_attempt_at - ?2) end,
  updated_at = ?1
where status = 'pending' and next_attempt_at > ?1 and not (attempts = 0 and updated_at = created_at and next_attempt_at <> created_at);
update {clock} set seen = ?1
