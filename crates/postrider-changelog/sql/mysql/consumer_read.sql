-- The lease that an owner has on a consumer, and how far it has read.
-- Name, owner
-- Uses the primary key.
select cast(fence as char), lower(hex(versionstamp)), entry_id
from {cursors}
where name = ? and locked_by = ?
