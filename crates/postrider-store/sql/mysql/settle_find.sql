-- Finds leased rows by their ids and says whose they are, when not all of them were found where they should be, or one could not be had.
-- The rows' ids
-- Uses {name}_id_idx. One form locks them and passes over those that somebody else has locked, the other only looks.
select seq, id, locked_by, attempts
from {table} force index ({name}_id_idx)
where id in ({items}) and status = 'processing'
{lock}
