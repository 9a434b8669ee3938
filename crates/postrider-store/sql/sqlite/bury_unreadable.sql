-- Gives up what a claim took and is no message. Its ids need not be any, so none is compared.
-- ?1 now, ?2 number, attempt and error of each (a JSON array of arrays), ?3 worker
-- Finds rows by their numbers.
with given(seq, attempt, error) as (
  select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') from json_each(?2))
update {table} as row
set {row.set_buried ?1}
from given
where {row.number} = given.seq and {row.attempts} = given.attempt and +{row.processing}{of_worker}
returning {number}
