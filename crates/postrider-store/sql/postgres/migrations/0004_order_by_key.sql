-- Order per key: what waits or is under way, by line (namespace, tenant, key). Rows without a key are not in it. Writes wait while it is made; whoever
-- cannot let them wait makes it before, concurrently.
create index if not exists {name}_key_idx on {table}
  (namespace, key, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), seq)
  where status in ('pending', 'processing') and key is not null;

-- A connection takes one number at a time from now on. Taken a hundred at a time, numbers of different connections are
-- not in the order of writing, even if one wrote after the other had committed. What connections had taken is dropped.
-- The sequence is changed and not the column: that would want the table for itself, while claims that have begun to wait for
-- the index hold a part of it, and so a deadlock.
do $$
begin
  execute format('alter sequence %s cache 1', pg_get_serial_sequence('{table}', 'seq'));
end
$$;
