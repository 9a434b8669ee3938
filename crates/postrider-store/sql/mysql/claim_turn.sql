-- Which of the rows that this transaction has locked wait for none of their line (namespace, tenant, key), and whether others wait for them.
-- The rows' numbers
-- Uses the primary key and {name}_key_idx. A statement of its own, so that it sees whatever was committed before the rows were locked: an earlier row may have come after the statement that locked them had begun.
select seq, namespace, `key`, tenant_id, `key` is not null and ({has_later}) as followed
from {table} as mine force index (primary)
where seq in ({items}) and {in_turn}
