-- After the clock was set back: leases keep what is left of them.
-- ?1 unused, ?2 by how much it was set back, µs
-- Reads {name}_lease_idx.
update {table} set {locked} = {locked} - ?2 where {processing}
