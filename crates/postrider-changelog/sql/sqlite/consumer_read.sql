-- The lease that an owner has on a consumer, and how far it has read.
-- ?1 name, ?2 owner
-- Uses the primary key.
select cast(fence as text), lower(hex(versionstamp)), entry_id
from {cursors}
where name = ?1 and locked_by = ?2
