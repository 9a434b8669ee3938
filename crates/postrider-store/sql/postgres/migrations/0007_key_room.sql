-- Room in the primary key's pages for a second entry of each row. A claim writes a new version of a row, and so a second entry beside the
-- first: pages that were packed full would be searched for entries to drop and then split. It holds for pages that are written from now on.
alter index {schema}.{name}_pkey set (fillfactor = 50);
