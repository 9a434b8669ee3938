-- The table of the outbox event router, with its usual columns. Ids are UUIDs in lower case with hyphens.
create table {table} (
  id            text not null primary key,
  aggregatetype text not null,
  aggregateid   text not null,
  type          text not null,
  payload       text null
);
