-- The changelog: one entry per unit of work, never changed, in commit order by its versionstamp. The table of settings holds
-- the transaction version, which a writer locks until it commits, and the id of this changelog.
-- The payload is json and not jsonb: what was written is read, byte for byte, and a character of number zero is allowed.
create table {settings} (
  id    uuid not null default gen_random_uuid(),
  key   text collate "C" not null primary key,
  value text not null
) with (fillfactor = 50);

create table {changelog} (
  id           uuid        not null default gen_random_uuid(),
  versionstamp bytea       not null primary key,
  uow_id       text        collate "C" not null,
  payload      json        not null,
  ref_map      json,
  created_at   timestamptz not null default clock_timestamp(),
  constraint {changelog_stamp} check (octet_length(versionstamp) = 12)
);

create unique index {changelog_uow} on {changelog} (uow_id);

create table {cursors} (
  name         text        collate "C" not null primary key,
  versionstamp bytea       not null,
  entry_id     uuid,
  locked_by    uuid,
  locked_until timestamptz,
  fence        bigint      not null default 0,
  last_error   text,
  failed_since timestamptz,
  created_at   timestamptz not null default now(),
  updated_at   timestamptz not null default now(),
  constraint {cursors_stamp} check (octet_length(versionstamp) = 12)
);

insert into {settings} (key, value) values ('store.id', gen_random_uuid()::text);

comment on table {settings} is 'Settings of the changelog (Postrider): its id, and the transaction version, which takes one writer at a time.';
comment on table {changelog} is 'The changelog (Postrider): one entry per unit of work, in commit order by versionstamp.';
comment on table {cursors} is 'How far the named consumers of the changelog have read (Postrider).';
