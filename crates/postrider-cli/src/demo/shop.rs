//! The application: every order is written together with its message.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use postrider::{Message, Outbox};
use sqlx::SqlitePool;

const ITEMS: [&str; 5] = ["lamp", "chair", "teapot", "atlas", "kite"];
const CLERKS: u32 = 4;

/// A shop with its orders in the same database as the outbox. Cheap to clone.
#[derive(Clone)]
pub struct Shop {
    pool: SqlitePool,
    outbox: Outbox,
    committed: Arc<Mutex<BTreeSet<u32>>>,
    pub called_off: Arc<AtomicU32>,
}

/// What the world is told of an order.
#[derive(serde::Serialize)]
struct OrderPlaced<'a> {
    order: u32,
    item: &'a str,
    quantity: u32,
}

impl Shop {
    pub async fn open(pool: SqlitePool, outbox: Outbox) -> Result<Self> {
        let table =
            "create table if not exists orders (id integer primary key, item text not null, quantity integer not null)";
        sqlx::query(table).execute(&pool).await.context("cannot make the shop's table")?;
        Ok(Self { pool, outbox, committed: Arc::default(), called_off: Arc::default() })
    }

    /// Several clerks place orders at the same time, each at a human pace.
    pub async fn place(&self, orders: u32) -> Result<()> {
        let mut clerks = tokio::task::JoinSet::new();
        for clerk in 0..CLERKS {
            let shop = self.clone();
            clerks.spawn(async move {
                for order in (1..=orders).filter(|order| order % CLERKS == clerk) {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(5..35))).await;
                    let changes_their_mind = fastrand::u32(..10) == 0;
                    shop.place_one(order, changes_their_mind).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(clerk) = clerks.join_next().await {
            clerk??;
        }
        Ok(())
    }

    /// The order and its message, or neither. One customer in ten changes their mind at the till.
    pub async fn place_one(&self, order: u32, called_off: bool) -> Result<()> {
        let placed = OrderPlaced { order, item: ITEMS[fastrand::usize(..ITEMS.len())], quantity: fastrand::u32(1..=3) };

        // SQLite has one writer at a time: `immediate` waits for its turn here, and not in the middle.
        let mut transaction = self.pool.begin_with("begin immediate").await?;
        sqlx::query("insert into orders (id, item, quantity) values (?, ?, ?)")
            .bind(placed.order)
            .bind(placed.item)
            .bind(placed.quantity)
            .execute(&mut *transaction)
            .await?;
        let message = Message::json("shop", "order.placed", &placed).key(order.to_string());
        self.outbox.enqueue(&mut transaction, message).await?;
        if called_off {
            transaction.rollback().await?;
            self.called_off.fetch_add(1, Ordering::Relaxed);
        } else {
            transaction.commit().await?;
            self.committed.lock().unwrap_or_else(PoisonError::into_inner).insert(order);
        }
        Ok(())
    }

    /// The orders whose commit was confirmed.
    pub fn told(&self) -> BTreeSet<u32> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The orders that are in the database.
    pub async fn orders(&self) -> Result<Vec<u32>> {
        Ok(sqlx::query_scalar("select id from orders order by id").fetch_all(&self.pool).await?)
    }

    /// How many messages the outbox has given up, and how many attempts it made beyond the first.
    pub async fn dead_and_retries(&self) -> Result<(i64, i64)> {
        let sql = "select count(*) filter (where status = 'dead'), coalesce(sum(attempts - 1), 0) from outbox_messages";
        Ok(sqlx::query_as(sql).fetch_one(&self.pool).await?)
    }
}
