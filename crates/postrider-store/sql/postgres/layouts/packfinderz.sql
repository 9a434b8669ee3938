-- The locked table of domain events of the layout `packfinderz`, and its enums.
create type {schema}.event_type_enum as enum ({event_types});
create type {schema}.aggregate_type_enum as enum ({aggregate_types});

create table {table} (
  id             uuid                         not null,
  event_type     {schema}.event_type_enum     not null,
  aggregate_type {schema}.aggregate_type_enum not null,
  aggregate_id   uuid                         not null,
  payload_json   jsonb                        not null,
  created_at     timestamptz                  not null default now(),
  published_at   timestamptz                  null,
  attempt_count  int                          not null default 0,
  last_error     text                         null,
  constraint {name}_pkey primary key (id)
);

create index {name}_published_at_idx on {table} (published_at);
create index {name}_event_type_idx on {table} (event_type);
create index {name}_aggregate_idx on {table} (aggregate_type, aggregate_id);
