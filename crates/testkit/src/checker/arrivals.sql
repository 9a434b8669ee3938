-- What the destination got; one row per arrival, not per message.
create table if not exists arrivals (
  id        uuid        not null,
  attempt   int         not null,
  worker    uuid        not null,
  begun_at  timestamptz not null,
  at        timestamptz not null default clock_timestamp(),
  topic     text        not null,
  key       text        null,
  tenant_id uuid        null,
  digest    text        not null
)
