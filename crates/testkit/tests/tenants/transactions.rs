//! Telling a transaction whose it is, with every driver, and that it is forgotten with the transaction.

use std::str::FromStr;

use anyhow::{Result, anyhow};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use postrider::postgres::enqueue::DieselTransaction;
use postrider::{Outbox, TenantSetting, tenant};
use sea_orm::{ConnectOptions, ConnectionTrait, DbBackend, Statement, TransactionTrait};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::{PgBouncer, Postgres};
use tokio_postgres::NoTls;
use uuid::Uuid;

use crate::scene::{Scene, order};

const SETTING: &str = "select coalesce(current_setting('app.current_tenant_id', true), '')";
const SEEN: &str = "select count(*) from outbox_messages";

async fn setting(pool: &PgPool) -> Result<String> {
    Ok(sqlx::query_scalar(SETTING).persistent(false).fetch_one(pool).await?)
}

#[tokio::test]
async fn s08_with_sqlx_a_tenant_ends_with_its_transaction() -> Result<()> {
    let (scene, one) = (Scene::protected().await?, Uuid::new_v4());
    let (pool, outbox) = (scene.application().await?, Outbox::default());
    for commit in [true, false] {
        let mut transaction = pool.begin().await?;
        tenant::set(&mut transaction, one).await?;
        outbox.enqueue_many(&mut transaction, [order(one, 1), order(one, 2)]).await?;
        let seen: i64 = sqlx::query_scalar(SEEN).fetch_one(&mut *transaction).await?;
        match commit {
            true => transaction.commit().await?,
            false => transaction.rollback().await?,
        }
        assert_eq!(seen, if commit { 2 } else { 4 });
        assert_eq!(setting(&pool).await?, "", "the next user of the connection has no tenant");
        assert_eq!(sqlx::query_scalar::<_, i64>(SEEN).fetch_one(&pool).await?, 0);
    }
    // A transaction that is dropped is rolled back.
    let mut transaction = pool.begin().await?;
    tenant::set(&mut transaction, one).await?;
    drop(transaction);
    assert_eq!(setting(&pool).await?, "");
    Ok(())
}

#[tokio::test]
async fn s08_with_tokio_postgres_a_tenant_ends_with_its_transaction() -> Result<()> {
    let (scene, one) = (Scene::protected().await?, Uuid::new_v4());
    let (mut client, connection) = tokio_postgres::connect(&scene.url(scene.roles.producer()), NoTls).await?;
    tokio::spawn(connection);
    let outbox = Outbox::default();
    for commit in [true, false] {
        let transaction = client.transaction().await?;
        tenant::set(&transaction, one).await?;
        outbox.enqueue(&transaction, order(one, 1)).await?;
        outbox.enqueue(&transaction, order(Uuid::new_v4(), 1)).await.expect_err("of another tenant");
        match commit {
            true => assert!(transaction.commit().await.is_ok()),
            false => transaction.rollback().await?,
        }
        let left: String = client.query_one(SETTING, &[]).await?.get(0);
        assert_eq!(left, "");
    }
    let transaction = client.transaction().await?;
    tenant::set(&transaction, one).await?;
    outbox.enqueue(&transaction, order(one, 1)).await?;
    transaction.commit().await?;
    assert_eq!(client.query_one(SEEN, &[]).await?.get::<_, i64>(0), 0);
    assert_eq!(scene.count().await?, 1);
    Ok(())
}

#[tokio::test]
async fn s08_with_sea_orm_a_tenant_ends_with_its_transaction() -> Result<()> {
    let (scene, one) = (Scene::protected().await?, Uuid::new_v4());
    let mut options = ConnectOptions::new(scene.url(scene.roles.producer()));
    options.max_connections(1).sqlx_logging(false);
    let database = sea_orm::Database::connect(options).await?;
    let ask = |sql: &str| Statement::from_string(DbBackend::Postgres, sql);
    for commit in [true, false] {
        let transaction = database.begin().await?;
        tenant::set(&transaction, one).await?;
        Outbox::default().enqueue_many(&transaction, [order(one, 1), order(one, 2)]).await?;
        match commit {
            true => transaction.commit().await?,
            false => transaction.rollback().await?,
        }
        let left = database.query_one_raw(ask(SETTING)).await?.ok_or_else(|| anyhow!("no row"))?;
        assert_eq!(left.try_get_by_index::<String>(0)?, "");
    }
    assert_eq!(scene.count().await?, 2);
    let transaction = database.begin().await?;
    tenant::set(&transaction, one).await?;
    Outbox::default().enqueue(&transaction, order(Uuid::new_v4(), 1)).await.expect_err("of another tenant");
    let sqlite = sea_orm::Database::connect("sqlite::memory:").await?;
    let elsewhere = tenant::set(&sqlite.begin().await?, one).await.expect_err("not on PostgreSQL");
    assert!(matches!(elsewhere, tenant::SetTenantError::NotPostgres), "{elsewhere}");
    Ok(())
}

#[derive(diesel::QueryableByName)]
struct Left {
    #[diesel(sql_type = diesel::sql_types::Text)]
    left: String,
}

#[tokio::test]
async fn s08_with_diesel_a_tenant_ends_with_its_transaction() -> Result<()> {
    let (scene, one) = (Scene::protected().await?, Uuid::new_v4());
    let mut connection = AsyncPgConnection::establish(&scene.url(scene.roles.producer())).await?;
    for commit in [true, false] {
        let done: Result<()> = connection
            .transaction(async |connection| {
                tenant::set(DieselTransaction::of(connection)?, one).await?;
                Outbox::default().enqueue(DieselTransaction::of(connection)?, order(one, 1)).await?;
                if commit { Ok(()) } else { Err(anyhow!("rolled back on purpose")) }
            })
            .await;
        assert_eq!(done.is_ok(), commit);
        let asked = format!("{SETTING} as \"left\"");
        let left: Vec<Left> = diesel::sql_query(asked).load(&mut connection).await?;
        assert_eq!(left[0].left, "");
    }
    assert_eq!(scene.count().await?, 1);
    let crossed: Result<()> = connection
        .transaction(async |connection| {
            tenant::set(DieselTransaction::of(connection)?, one).await?;
            Outbox::default().enqueue(DieselTransaction::of(connection)?, order(Uuid::new_v4(), 1)).await?;
            Ok(())
        })
        .await;
    crossed.expect_err("of another tenant");
    Ok(())
}

#[tokio::test]
async fn s08_r42_behind_a_pooler_the_next_client_of_a_connection_has_no_tenant() -> Result<()> {
    let server = Postgres::shared().await?;
    let database = server.create_database().await?;
    let pooler = PgBouncer::start(server, database.name()).await?;
    let options = PgConnectOptions::from_str(&pooler.url())?.statement_cache_capacity(0).extra_float_digits(None);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
    let names = TenantSetting::new("shop.tenant")?;
    for round in 0..20 {
        let mut transaction = pool.begin().await?;
        names.set(&mut transaction, Uuid::new_v4()).await?;
        let sql = "select coalesce(current_setting('shop.tenant', true), '')";
        let inside: String = sqlx::query_scalar(sql).persistent(false).fetch_one(&mut *transaction).await?;
        assert_eq!(inside.len(), 36);
        if round % 2 == 0 {
            transaction.commit().await?
        } else {
            transaction.rollback().await?
        }
        // More clients than connections of the pooler, so that each of those is met.
        let mut others = Vec::new();
        for _ in 0..6 {
            let mut other = pool.begin().await?;
            let left: String = sqlx::query_scalar(sql).persistent(false).fetch_one(&mut *other).await?;
            assert_eq!(left, "");
            if others.len() < 4 {
                others.push(other);
            }
        }
    }
    Ok(())
}
