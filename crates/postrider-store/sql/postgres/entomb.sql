-- Gives rows up that have just been marked as failed in the same transaction, where the table's owner wants it in two steps.
-- $1 ids
-- Uses the primary key.
update {table} as row
set {set_entombed}
where {row.raw_id} = any ({raws $1::uuid[]}) and {row.pending}
