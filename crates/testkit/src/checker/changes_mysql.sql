-- Writes down every change of a row with who made it: the connection's account. In a trigger `utc_timestamp` is the time
-- of the statement, which it goes by, and `sysdate` the time of the moment; the server's time zone is UTC.
create table changes (
  id               char(36)     character set ascii collate ascii_bin not null,
  at               datetime(6)  not null,
  decided_at       datetime(6)  not null,
  made_by          varchar(200) not null,
  was              varchar(16)  not null,
  became           varchar(16)  not null,
  attempts_were    int          not null,
  attempts         int          not null,
  locked_by_was    char(36)     null,
  locked_by        char(36)     null,
  locked_until_was datetime(6)  null
) engine = InnoDB;

create trigger note_update after update on outbox_messages for each row
insert into changes
select new.id, timestampadd(microsecond, timestampdiff(microsecond, now(6), sysdate(6)), utc_timestamp(6)), utc_timestamp(6), user(),
       old.status, new.status, old.attempts, new.attempts, old.locked_by, new.locked_by, old.locked_until
from dual where not (old.status <=> new.status and old.attempts <=> new.attempts and old.locked_by <=> new.locked_by);

create trigger note_delete after delete on outbox_messages for each row
insert into changes values (old.id, utc_timestamp(6), utc_timestamp(6), user(),
       old.status, 'deleted', old.attempts, old.attempts, old.locked_by, null, old.locked_until);
