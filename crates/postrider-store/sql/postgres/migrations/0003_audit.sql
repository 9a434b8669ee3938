-- What operators did to messages: one line for each call that changed something, written in the same transaction.
-- The sequence has a name of its own, because the one that PostgreSQL would make up could be cut off.
create table {audit} (
  seq      bigint      not null generated always as identity (sequence name {audit_numbers}) primary key,
  at       timestamptz not null default now(),
  who      text        not null,
  action   text        collate "C" not null,
  asked    jsonb       not null,
  messages bigint      not null,
  ids      jsonb       not null default '[]'
);

comment on table {audit} is 'What operators did to messages (Postrider). One line for each call that changed something; the newest has the highest seq.';
