-- What operators did to messages: one line for each call that changed something, written in the same transaction. The
-- newest has the highest number. Times are UTC; what was asked for and the ids are JSON.
create table if not exists {audit} (
  seq      bigint       not null auto_increment,
  at       datetime(6)  not null default (utc_timestamp(6)),
  who      varchar(200) character set utf8mb4 collate utf8mb4_bin not null,
  action   varchar(16)  character set ascii collate ascii_bin not null,
  asked    longtext     character set utf8mb4 collate utf8mb4_bin not null,
  messages bigint       not null,
  ids      longtext     character set ascii collate ascii_bin not null,
  primary key (seq)
) engine = InnoDB, row_format = dynamic, comment = 'Postrider: what operators did to messages.'
