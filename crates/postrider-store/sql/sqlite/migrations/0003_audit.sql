-- What operators did to messages: one line for each call that changed something, written in the same transaction. The
-- newest has the highest number. There is no version 2: on other databases it is the function for producers.
create table {audit} (
  seq      integer primary key autoincrement,
  at       integer not null default ({now}),
  who      text    not null,
  action   text    not null,
  asked    text    not null,
  messages integer not null,
  ids      text    not null default '[]'
);
