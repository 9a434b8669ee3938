//! What the shop promises, over HTTP and against a real PostgreSQL.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use postrider::{Names, PostgresStore};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::net::TcpListener;

use crate::{demo, orders};

struct Shop {
    address: SocketAddr,
    pool: PgPool,
}

impl Shop {
    async fn open() -> Result<Self> {
        let pool = testkit::Postgres::shared().await?.create_database().await?.pool().await?;
        let store = PostgresStore::new(pool.clone(), Names::default());
        store.migrate().await?;
        orders::prepare(&pool).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(axum::serve(listener, orders::router(pool.clone(), store.outbox())).into_future());
        Ok(Self { address, pool })
    }

    async fn post(&self, order: Value) -> Result<(u16, Value)> {
        demo::post(self.address, &order).await
    }

    /// Orders and messages in the database.
    async fn counts(&self) -> Result<(i64, i64)> {
        let counts = "select (select count(*) from orders), (select count(*) from outbox_messages)";
        Ok(sqlx::query_as(counts).fetch_one(&self.pool).await?)
    }
}

#[tokio::test]
async fn an_order_and_its_message_are_written_together() -> Result<()> {
    let shop = Shop::open().await?;
    let (status, order) = shop.post(json!({ "item": "lamp", "quantity": 2 })).await?;
    assert_eq!(status, 201);
    let payload: Value = sqlx::query_scalar("select payload from outbox_messages").fetch_one(&shop.pool).await?;
    assert_eq!(payload, order);
    assert_eq!(shop.counts().await?, (1, 1));
    Ok(())
}

#[tokio::test]
async fn an_order_that_is_rolled_back_leaves_no_message() -> Result<()> {
    let shop = Shop::open().await?;
    let (status, answer) = shop.post(json!({ "item": "lamp", "quantity": 101 })).await?;
    assert_eq!((status, answer), (409, json!({ "error": "not enough of this item in stock" })));
    assert_eq!(shop.counts().await?, (0, 0));
    Ok(())
}

#[tokio::test]
async fn bad_input_is_refused_with_a_reason() -> Result<()> {
    let shop = Shop::open().await?;
    for (order, reason) in [
        (json!({ "item": "lamp", "quantity": 0 }), "quantity must be from 1 to 1000"),
        (json!({ "item": " ", "quantity": 1 }), "item must have from 1 to 100 characters"),
        (json!({ "item": "a\u{0}b", "quantity": 1 }), "item must have from 1 to 100 characters"),
        (json!({ "item": "lamp" }), "missing field `quantity`"),
        (json!({ "item": "lamp", "quantity": 1, "price": 0 }), "unknown field `price`"),
        (json!("lamp"), "invalid type"),
    ] {
        let (status, answer) = shop.post(order.clone()).await?;
        assert_eq!(status, 400, "{order}");
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(reason), "{order}: {error}");
    }
    assert_eq!(shop.counts().await?, (0, 0));
    Ok(())
}

#[tokio::test]
async fn a_failing_database_is_not_described_to_the_customer() -> Result<()> {
    let shop = Shop::open().await?;
    sqlx::raw_sql("drop table outbox_messages").execute(&shop.pool).await?;
    let (status, answer) = shop.post(json!({ "item": "lamp", "quantity": 1 })).await?;
    assert_eq!((status, answer), (500, json!({ "error": "the order was not placed; please try again" })));
    let orders: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(&shop.pool).await?;
    assert_eq!(orders, 0, "an order without its message");
    Ok(())
}
