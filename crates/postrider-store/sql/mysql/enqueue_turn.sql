-- Takes a turn for each dedupe key, and waits for whoever has it; the turn ends with the transaction.
-- For each key: its slot
-- Uses the primary key. In the order of the slots, so that two producers of several keys do not wait for each other.
select slot from {turns} where slot in ({items}) order by slot for update
