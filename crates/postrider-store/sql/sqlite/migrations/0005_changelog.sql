-- The changelog: one entry per unit of work, never changed, in commit order by its versionstamp. The table of settings holds
-- the transaction version and the id of this changelog. Times are microseconds since 1970 in UTC.
create table {settings} (
  id    text not null default (lower(hex(randomblob(16)))),
  key   text not null primary key,
  value text not null
) without rowid;

create table {changelog} (
  id           text    not null,
  versionstamp blob    not null primary key,
  uow_id       text    not null unique,
  payload      text    not null,
  ref_map      text,
  created_at   integer not null default ({now}),
  check (typeof(versionstamp) = 'blob' and length(versionstamp) = 12),
  check (typeof(payload) = 'text' and json_valid(payload)),
  check (ref_map is null or json_valid(ref_map))
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
  check (typeof(versionstamp) = 'blob' and length(versionstamp) = 12)
) without rowid;

insert into {settings} (key, value) values ('store.id', lower(
  hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
  substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))));
