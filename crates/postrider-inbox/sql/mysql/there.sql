-- Whether an event is in the inbox, as this transaction sees it: a row or none.
-- Consumer, event
-- Uses the primary key.
select cast(1 as signed), cast(0 as signed)
from {messages}
where consumer = ? and event_id = ?
