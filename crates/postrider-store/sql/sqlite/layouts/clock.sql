-- The latest time that a relay has seen, and the newest row then: if the clock shows less, it was set back (see clock.rs).
create table {clock} (
  only integer primary key check (only = 1),
  seen integer not null,
  newest integer not null
);
insert into {clock} (only, seen, newest) values (1, 0, 0);
