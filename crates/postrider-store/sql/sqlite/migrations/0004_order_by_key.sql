-- Order per key: what waits or is under way, by key. Rows without a key are not in it.
create index "{name}_key_idx" on "{name}" (namespace, key, seq) where status in ('pending', 'processing') and key is not null;
