-- Notes what an operator did.
-- Who, what, what was asked for, how many messages were changed, which (a JSON array)
-- No index.
insert into {audit} (who, action, asked, messages, ids) values (?, ?, ?, ?, ?)
