-- Writes down every change of a row; SQLite has no accounts, so nobody is named. Times are microseconds since 1970.
create table changes (
  id               text    not null,
  at               integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  decided_at       integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  made_by          text    not null default 'somebody',
  was              text    not null,
  became           text    not null,
  attempts_were    integer not null,
  attempts         integer not null,
  locked_by_was    text    null,
  locked_by        text    null,
  locked_until_was integer null
);

create trigger note_update after update on outbox_messages for each row
when old.status is not new.status or old.attempts is not new.attempts or old.locked_by is not new.locked_by
begin
  insert into changes (id, was, became, attempts_were, attempts, locked_by_was, locked_by, locked_until_was)
  values (new.id, old.status, new.status, old.attempts, new.attempts, old.locked_by, new.locked_by, old.locked_until);
end;

create trigger note_delete after delete on outbox_messages for each row
begin
  insert into changes (id, was, became, attempts_were, attempts, locked_by_was, locked_until_was)
  values (old.id, old.status, 'deleted', old.attempts, old.attempts, old.locked_by, old.locked_until);
end;
