-- Wakes every relay that sleeps on this table.
-- $1 a word that comes with the ring, after the table's name
-- No index.
select pg_notify('{channel}', '{bell}' || $1::text)
