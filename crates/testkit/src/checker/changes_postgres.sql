-- Writes down every change of a row with who made it: the connection's account and application name.
create table changes (
  id               uuid        not null,
  at               timestamptz not null default clock_timestamp(),
  decided_at       timestamptz not null default now(),
  made_by          text        not null default session_user || '/' || current_setting('application_name'),
  was              text        not null,
  became           text        not null,
  attempts_were    int         not null,
  attempts         int         not null,
  locked_by_was    uuid        null,
  locked_by        uuid        null,
  locked_until_was timestamptz null,
  locked_until     timestamptz null
);

create function note_change() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    insert into changes (id, was, became, attempts_were, attempts) values (old.id, old.status, 'deleted', old.attempts, old.attempts);
    return old;
  end if;
  insert into changes (id, was, became, attempts_were, attempts, locked_by_was, locked_by, locked_until_was, locked_until)
  values (new.id, old.status, new.status, old.attempts, new.attempts, old.locked_by, new.locked_by, old.locked_until, new.locked_until);
  return new;
end
$$;

create trigger note_update after update on outbox_messages for each row
when ((old.status, old.attempts, old.locked_by) is distinct from (new.status, new.attempts, new.locked_by))
execute function note_change();
create trigger note_delete after delete on outbox_messages for each row execute function note_change();
