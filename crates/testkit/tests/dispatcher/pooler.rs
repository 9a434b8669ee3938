//! Behind PgBouncer in transaction mode.

use std::str::FromStr;
use std::time::Duration;

use postrider::{Dispatcher, Names, PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::{PgBouncer, Postgres, eventually};

use crate::scene::{Recorder, Running, message};

/// Advisory locks in this database; other tests have their own.
const LOCKS: &str = "select count(*) from pg_locks where locktype = 'advisory'
    and database = (select oid from pg_database where datname = current_database())";

#[tokio::test(flavor = "multi_thread")]
async fn r42_through_a_transaction_pooler_all_works_by_polling_and_no_lock_is_left_behind() {
    let server = Postgres::shared().await.expect("a private PostgreSQL starts");
    let database = server.create_database().await.expect("a database is made");
    let pooler = PgBouncer::start(server, database.name()).await.expect("PgBouncer starts");
    let options = PgConnectOptions::from_str(&pooler.url())
        .expect("a good URL")
        .statement_cache_capacity(0)
        .extra_float_digits(None);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await.expect("it connects");
    let store = PostgresStore::new(pool.clone(), Names::default()).behind_pooler(true);
    store.migrate().await.expect("the migrations run");
    let sink = Recorder::accepting();
    let relays: Vec<_> =
        (0..3).map(|_| Running::start(Dispatcher::builder(store.clone(), sink.clone()).batch_size(20))).collect();
    let outbox = store.outbox();
    for _ in 0..100 {
        let mut transaction = pool.begin().await.expect("a transaction begins");
        let _new = outbox.enqueue(&mut transaction, message("order.placed")).await.expect("a good message");
        transaction.commit().await.expect("it commits");
    }
    eventually(Duration::from_secs(120), || async { sink.arrivals().len() == 100 }).await;
    for relay in relays {
        let _ended = relay.stop().await;
    }
    let direct = database.pool().await.expect("it connects");
    let locks: i64 = sqlx::query_scalar(LOCKS).fetch_one(&direct).await.expect("pg_locks can be read");
    assert_eq!(locks, 0, "a lock stayed behind on a connection of the pooler");
}

#[tokio::test(flavor = "multi_thread")]
async fn r42_a_pooler_that_nobody_told_us_of_is_noticed_before_a_lock_is_taken() {
    let server = Postgres::shared().await.expect("a private PostgreSQL starts");
    let database = server.create_database().await.expect("a database is made");
    let direct = database.pool().await.expect("it connects");
    PostgresStore::new(direct.clone(), Names::default()).migrate().await.expect("the migrations run");
    let pooler = PgBouncer::start(server, database.name()).await.expect("PgBouncer starts");
    let options = PgConnectOptions::from_str(&pooler.url())
        .expect("a good URL")
        .statement_cache_capacity(0)
        .extra_float_digits(None);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await.expect("it connects");
    let store = PostgresStore::new(pool, Names::default());
    let mut bell = postrider::Store::doorbell(&store, &postrider::Scope::all()).await.expect("a bell");
    // Whether a statement finds its way through such a pooler is luck; what counts is that no lock is taken.
    let armed = bell.arm().await;
    assert!(!matches!(armed, Ok(postrider::Armed::Yes | postrider::Armed::Busy)), "{armed:?}");
    let locks: i64 = sqlx::query_scalar(LOCKS).fetch_one(&direct).await.expect("pg_locks can be read");
    assert_eq!(locks, 0);
}
