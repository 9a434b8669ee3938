-- Finds leased rows by their ids and says whose they are, when not all of them were found where they should be, or one could not be had.
-- The rows' ids
-- Uses {name}_id_idx. One form locks them and passes over those that somebody else has locked, the other only looks.
select {row_key}, {id}, {locked_by}, cast({attempts} as signed){and_turn}
from {table}{by_id}
where {raw_id} in ({items}) and {processing}
{lock}
