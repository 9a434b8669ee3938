-- Order per key: what waits or is under way, by line (namespace, tenant, key); the row's number is the last part of every index. MySQL cannot be told
-- to make an index only if it is missing, so a procedure looks for it, and a second run does nothing. Each statement may be
-- run on a connection of its own.
drop procedure if exists {add_index}
-- next statement
create procedure {add_index}()
begin
  if not exists (
    select 1 from information_schema.statistics
    where table_schema = {database} and table_name = '{name}' and index_name = '{name}_key_idx') then
    create index {name}_key_idx on {table} (status, namespace, `key`, tenant_id);
  end if;
end
-- next statement
call {add_index}()
-- next statement
drop procedure if exists {add_index}
