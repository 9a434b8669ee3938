-- Order per key: what waits or is under way, by line (namespace, tenant, key). Rows without a key are not in it.
create index "{name}_key_idx" on "{name}" (namespace, key, tenant_id, seq) where status in ('pending', 'processing') and key is not null;
