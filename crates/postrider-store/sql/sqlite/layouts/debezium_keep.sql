-- Columns that the outbox event router's table needs so that delivered rows can stay. All have defaults: producers need not know them.
-- SQLite adds no column whose default is the present, so a trigger fills the times in.
alter table {table} add column status          text    not null default 'pending' check (status in ('pending', 'processing', 'delivered', 'dead'));
alter table {table} add column attempts        integer not null default 0;
alter table {table} add column next_attempt_at integer not null default 0;
alter table {table} add column locked_by       text    null;
alter table {table} add column locked_until    integer null;
alter table {table} add column last_error      text    null;
alter table {table} add column created_at      integer not null default 0;
alter table {table} add column updated_at      integer not null default 0;
alter table {table} add column delivered_at    integer null;
update {table} set next_attempt_at = {now}, created_at = {now}, updated_at = {now};

create trigger "{name}_times" after insert on "{name}" when new.created_at = 0 begin
  update "{name}" set created_at = {now}, updated_at = {now}, next_attempt_at = max(next_attempt_at, {now}) where id = new.id;
end;

create index "{name}_due_idx" on "{name}" (next_attempt_at) where status = 'pending';
create index "{name}_lease_idx" on "{name}" (locked_until) where status = 'processing';
create index "{name}_delivered_idx" on "{name}" (updated_at) where status = 'delivered';
create index "{name}_dead_idx" on "{name}" (updated_at) where status = 'dead';
