-- The server's version and settings, as this session has them.
-- Nothing
-- No index.
select version() as version, current_setting('server_version_num')::int as number,
  current_setting('default_transaction_isolation') as isolation,
  current_setting('default_transaction_read_only') = 'on' as read_only, pg_is_in_recovery() as standby,
  current_setting('fsync') = 'on' as fsync, current_setting('full_page_writes') = 'on' as full_page_writes,
  current_setting('synchronous_commit') as synchronous_commit, current_setting('autovacuum') = 'on' as autovacuum,
  current_setting('statement_timeout') as statement_timeout,
  current_setting('idle_in_transaction_session_timeout') as idle_timeout,
  current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint as connections,
  (select count(*) from pg_stat_activity where backend_type = 'client backend') as connected,
  quote_ident(current_user) as role, quote_ident(current_database()) as database
