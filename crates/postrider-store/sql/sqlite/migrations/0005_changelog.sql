-- The changelog: one entry per unit of work, never changed, in commit order by its versionstamp. The table of settings holds
-- the transaction version and the id of this changelog. Times are microseconds since 1970 in UTC. A column takes values of any
-- type where nothing is said, so the checks say it.
create table {settings} (
  id    text not null default ({uuid_v7}),
  key   text not null primary key,
  value text not null,
  check (typeof(key) = 'text' and typeof(value) = 'text')
) without rowid;

create table {changelog} (
  id           text    not null default ({uuid_v7}),
  versionstamp blob    not null primary key,
  uow_id       text    not null unique,
  payload      text    not null,
  ref_map      text,
  created_at   integer not null default ({now}),
  check (id glob '{uuid_pattern}'),
  check (typeof(versionstamp) = 'blob' and length(versionstamp) = 12),
  check (typeof(uow_id) = 'text' and typeof(created_at) = 'integer'),
  check (typeof(payload) = 'text' and json_valid(payload)),
  check (ref_map is null or (typeof(ref_map) = 'text' and json_valid(ref_map)))
);

create table {cursors} (
  name         text    not null primary key,
  versionstamp blob    not null,
  entry_id     text,
  locked_by    text,
  locked_until integer,
  fence        integer not null default 0,
  last_error   text,
  failed_since integer,
  created_at   integer not null default ({now}),
  updated_at   integer not null default ({now}),
  check (typeof(name) = 'text' and typeof(fence) = 'integer'),
  check (typeof(versionstamp) = 'blob' and length(versionstamp) = 12),
  check (typeof(locked_until) in ('integer', 'null') and typeof(failed_since) in ('integer', 'null'))
) without rowid;

insert into {settings} (key, value) values ('store.id', {uuid_v7});
