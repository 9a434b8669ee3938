-- Order per key: what waits or is under way, by key; the row's number is the last part of every index. MySQL cannot be told
-- to make an index only if it is missing, so it is looked for, and a second run does nothing.
set @postrider_statement = if((select count(*) from information_schema.statistics where table_schema = {database} and table_name = '{name}' and index_name = '{name}_key_idx') > 0, 'do 0', 'create index {name}_key_idx on {table} (status, namespace, `key`)')
-- next statement
prepare postrider_statement from @postrider_statement
-- next statement
execute postrider_statement
-- next statement
deallocate prepare postrider_statement
