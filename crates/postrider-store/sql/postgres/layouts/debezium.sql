-- The table of the outbox event router, with its usual columns.
create table {table} (
  id            uuid         not null,
  aggregatetype varchar(255) not null,
  aggregateid   varchar(255) not null,
  type          varchar(255) not null,
  payload       jsonb        null,
  constraint {name}_pkey primary key (id)
);
