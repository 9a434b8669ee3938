-- Notes what an operator did.
-- ?1 when, ?2 who, ?3 what, ?4 what was asked for, ?5 how many messages were changed, ?6 which (a JSON array)
-- No index.
insert into {audit} (at, who, action, asked, messages, ids) values (?1, ?2, ?3, ?4, ?5, ?6)
