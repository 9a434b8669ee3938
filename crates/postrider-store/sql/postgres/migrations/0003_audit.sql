-- What operators did to messages: one line for each call that changed something, written in the same transaction.
create table {audit} (
  seq      bigint      not null generated always as identity primary key,
  at       timestamptz not null default now(),
  who      text        not null,
  action   text        collate "C" not null,
  asked    jsonb       not null,
  messages bigint      not null,
  ids      jsonb       not null default '[]'
);

comment on table {audit} is 'What operators did to messages (Postrider). One line for each call that changed something; the newest has the highest seq.';
