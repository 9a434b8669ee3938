//! r05: what is not a transaction is refused by type. (A diesel connection is refused at run time, see `diesel.rs`.)

use diesel_async::AsyncPgConnection;
use postrider::CallerTransaction;
use postrider::sqlite::enqueue::RusqliteTransaction;
use sea_orm::{DatabaseConnection, DatabaseTransaction};
use sqlx::{
    MySql, MySqlConnection, MySqlPool, PgConnection, PgPool, Postgres, Sqlite, SqliteConnection, SqlitePool,
    Transaction,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use tokio_postgres::Client;

assert_impl_all!(&mut Transaction<'static, Postgres>: CallerTransaction);
assert_not_impl_any!(PgPool: CallerTransaction);
assert_not_impl_any!(&PgPool: CallerTransaction);
assert_not_impl_any!(&mut PgPool: CallerTransaction);
assert_not_impl_any!(PgConnection: CallerTransaction);
assert_not_impl_any!(&mut PgConnection: CallerTransaction);
assert_not_impl_any!(&mut sqlx::pool::PoolConnection<Postgres>: CallerTransaction);

assert_impl_all!(&mut Transaction<'static, MySql>: CallerTransaction);
assert_not_impl_any!(&MySqlPool: CallerTransaction);
assert_not_impl_any!(&mut MySqlConnection: CallerTransaction);
assert_not_impl_any!(&mut sqlx::pool::PoolConnection<MySql>: CallerTransaction);

assert_impl_all!(&mut Transaction<'static, Sqlite>: CallerTransaction);
assert_not_impl_any!(&SqlitePool: CallerTransaction);
assert_not_impl_any!(&mut SqliteConnection: CallerTransaction);
assert_not_impl_any!(&mut sqlx::pool::PoolConnection<Sqlite>: CallerTransaction);
assert_impl_all!(rusqlite::Transaction<'static>: RusqliteTransaction);
assert_not_impl_any!(rusqlite::Connection: RusqliteTransaction);

assert_impl_all!(&tokio_postgres::Transaction<'static>: CallerTransaction);
assert_not_impl_any!(&Client: CallerTransaction);
assert_not_impl_any!(&mut Client: CallerTransaction);

assert_impl_all!(&DatabaseTransaction: CallerTransaction);
assert_not_impl_any!(&DatabaseConnection: CallerTransaction);
assert_not_impl_any!(&sea_orm::DatabaseExecutor<'static>: CallerTransaction);

assert_impl_all!(postrider::postgres::enqueue::DieselTransaction<'static>: CallerTransaction);
assert_not_impl_any!(&mut AsyncPgConnection: CallerTransaction);
assert_not_impl_any!(&AsyncPgConnection: CallerTransaction);

/// The assertions above hold when this file compiles; the test is here so that the promise has a name.
#[test]
fn r05_a_pool_or_a_connection_is_not_a_transaction() {}
