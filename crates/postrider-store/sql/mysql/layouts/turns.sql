-- Producers with the same dedupe key wait for each other here, see the first version of our own table.
create table if not exists {turns} (
  slot smallint unsigned not null primary key
) engine = InnoDB, comment = 'Postrider: producers with the same dedupe key take turns. Holds no data.'
