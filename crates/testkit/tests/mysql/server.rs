//! The private MariaDB keeps its promises: it answers, comes back, and keeps what was committed.

use anyhow::Result;
use sqlx::{Connection, Executor, MySqlConnection};
use testkit::{MariaDb, Proxy};

#[tokio::test]
async fn a_killed_server_comes_back_on_the_same_port_with_what_was_committed() -> Result<()> {
    let server = MariaDb::builder().durable().setting("lower-case-table-names", "0").start().await?;
    let database = server.create_database().await?;
    let pool = database.pool().await?;
    pool.execute("create table numbers (number int)").await?;
    pool.execute("insert into numbers values (7)").await?;
    let (pid, port) = (server.pid(), server.port());
    server.kill().await?;
    assert!(server.pid().is_none() && MySqlConnection::connect(&database.url()).await.is_err());
    server.restart().await?;
    assert!(server.pid().is_some() && server.pid() != pid && server.port() == port);
    let pool = database.pool().await?;
    assert_eq!(sqlx::query_scalar::<_, i32>("select number from numbers").fetch_one(&pool).await?, 7);
    Ok(())
}

#[tokio::test]
async fn a_database_can_be_reached_through_a_proxy() -> Result<()> {
    let server = MariaDb::shared().await?;
    let database = server.create_database().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let pool = sqlx::MySqlPool::connect(&database.url_via(proxy.port())).await?;
    let name: String = sqlx::query_scalar("select database()").fetch_one(&pool).await?;
    assert_eq!(name, database.name());
    Ok(())
}
