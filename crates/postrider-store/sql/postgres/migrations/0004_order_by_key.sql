-- Order per key: what waits or is under way, by key. Rows without a key are not in it.
create index {name}_key_idx on {table} (namespace, key, seq) where status in ('pending', 'processing') and key is not null;

-- A connection takes one number at a time from now on. Taken a hundred at a time, numbers of different connections are
-- not in the order of writing, even if one wrote after the other had committed. What connections had taken is dropped.
alter table {table} alter column seq set cache 1;
