-- The table of the outbox event router, with its usual columns. JSON is text, so that it arrives as it was written.
create table if not exists {table} (
  id            char(36)     character set ascii collate ascii_bin not null,
  aggregatetype varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
  aggregateid   varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
  type          varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
  payload       longtext     character set utf8mb4 collate utf8mb4_bin null,
  primary key (id)
) engine = InnoDB, row_format = dynamic
