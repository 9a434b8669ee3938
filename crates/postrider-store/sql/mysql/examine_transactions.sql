-- Transactions that are open for longer than a limit; never what they run.
-- The limit in seconds
-- Needs the privilege PROCESS.
select cast(trx_mysql_thread_id as signed) as thread, cast(trx_state as char) as state,
  cast(timestampdiff(second, trx_started, now()) as signed) as seconds, cast(trx_rows_locked as signed) as row_locks
from information_schema.innodb_trx
where trx_mysql_thread_id <> connection_id() and timestampdiff(second, trx_started, now()) >= ?
order by trx_started
limit 10
