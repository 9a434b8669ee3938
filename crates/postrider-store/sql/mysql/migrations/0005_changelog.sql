-- The changelog: one entry per unit of work, never changed, in commit order by its versionstamp. The table of settings holds
-- the transaction version, which a writer locks until it commits, and the id of this changelog. Times are UTC. The ids of units
-- of work and the names of consumers are bytes (UTF-8 by convention), so that trailing spaces make a difference. The payload
-- is text that nothing looks into: MariaDB's JSON functions stop at 32 levels.
create table if not exists {settings} (
  id    char(36)     character set ascii collate ascii_bin not null default (uuid()),
  `key` varchar(190) character set utf8mb4 collate utf8mb4_bin not null,
  value varchar(190) character set utf8mb4 collate utf8mb4_bin not null,
  primary key (`key`)
) engine = InnoDB, row_format = dynamic, comment = 'Postrider: settings of the changelog.'
-- next statement
create table if not exists {changelog} (
  id           char(36)       character set ascii collate ascii_bin not null default (uuid()),
  versionstamp binary(12)     not null,
  uow_id       varbinary(512) not null,
  payload      longtext       character set utf8mb4 collate utf8mb4_bin not null,
  ref_map      longtext       character set utf8mb4 collate utf8mb4_bin,
  created_at   datetime(6)    not null default (utc_timestamp(6)),
  primary key (versionstamp),
  unique key {changelog_uow} (uow_id),
  constraint {changelog_refs} check (json_valid(ref_map))
) engine = InnoDB, row_format = dynamic, comment = 'Postrider: one entry per unit of work, in commit order.'
-- next statement
create table if not exists {cursors} (
  name         varbinary(190) not null,
  versionstamp binary(12)     not null,
  entry_id     char(36)       character set ascii collate ascii_bin,
  locked_by    char(36)       character set ascii collate ascii_bin,
  locked_until datetime(6),
  fence        bigint         not null default 0,
  last_error   text           character set utf8mb4 collate utf8mb4_bin,
  failed_since datetime(6),
  created_at   datetime(6)    not null default (utc_timestamp(6)),
  updated_at   datetime(6)    not null default (utc_timestamp(6)),
  primary key (name)
) engine = InnoDB, row_format = dynamic, comment = 'Postrider: how far consumers of the changelog have read.'
-- next statement
insert ignore into {settings} (`key`, value) values ('store.id', uuid())
