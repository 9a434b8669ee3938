-- The lease that an owner has on a consumer, and how far it has read.
-- $1 name, $2 owner
-- Uses the primary key.
select fence::text, encode(versionstamp, 'hex'), entry_id::text
from {cursors}
where name = $1::text and locked_by = $2::text::uuid
