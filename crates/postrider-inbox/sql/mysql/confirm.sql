-- Whether an event stood in the way of its insert, also one that this transaction's snapshot does not have: a row or none.
-- Consumer, event
-- Uses the primary key. The insert has locked the row it met, so there is nobody to wait for.
{held}select cast(1 as signed), cast(0 as signed)
from {messages}
where consumer = ? and event_id = ?
lock in share mode
