//! A migrated outbox in a database of its own with the checkers installed, and a record of arrivals in another one,
//! so that no fault of the outbox's database touches the destination.

use std::time::Duration;

use anyhow::Result;
use postrider::{Message, Names, PostgresStore};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use testkit::checker::{Bounds, Checker, Report, arrivals};
use testkit::{Database, Postgres, within};
use uuid::Uuid;

/// How much more than in CI; see the top of the test binary.
pub fn scale() -> usize {
    std::env::var("POSTRIDER_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

pub struct Scene {
    pub database: Database,
    pub record: Database,
    pub pool: PgPool,
    pub store: PostgresStore,
    arrived: PgPool,
    checker: Checker,
}

impl Scene {
    pub async fn new() -> Result<Self> {
        Self::on(Postgres::shared().await?).await
    }

    pub async fn on(server: &Postgres) -> Result<Self> {
        let database = server.create_database().await?;
        let record = Postgres::shared().await?.create_database().await?;
        let pool = database.pool_with(|options| options.max_connections(4)).await?;
        let arrived = record.pool_with(|options| options.max_connections(2)).await?;
        arrivals::create(&mut *arrived.acquire().await?).await?;
        let store = PostgresStore::new(pool.clone(), Names::default());
        store.migrate().await?;
        let checker = Checker::install(pool.clone()).await?;
        Ok(Self { database, record, pool, store, arrived, checker })
    }

    /// Commits messages of a topic, in the ledger too; answers their ids.
    pub async fn enqueue(&self, topic: &'static str, count: usize) -> Result<Vec<Uuid>> {
        let outbox = self.store.outbox();
        let mut ids = Vec::with_capacity(count);
        let numbers: Vec<usize> = (0..count).collect();
        for chunk in numbers.chunks(1_000) {
            let messages: Vec<Message> = chunk.iter().map(|number| message(topic, *number)).collect();
            let new: Vec<Uuid> = messages.iter().map(Message::id).collect();
            let mut transaction = self.pool.begin().await?;
            sqlx::query("insert into ledger select unnest($1::uuid[])").bind(&new).execute(&mut *transaction).await?;
            outbox.enqueue_many(&mut transaction, messages).await?;
            transaction.commit().await?;
            ids.extend(new);
        }
        Ok(ids)
    }

    /// What a query without parameters answers, as one number.
    pub async fn count(&self, sql: &str) -> Result<i64> {
        Ok(sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await?)
    }

    pub async fn delivered(&self) -> Result<i64> {
        self.count("select count(*) from outbox_messages where status = 'delivered'").await
    }

    pub async fn arrivals(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("select count(*) from arrivals").fetch_one(&self.arrived).await?)
    }

    /// Waits for so many more arrivals.
    pub async fn more_arrivals(&self, count: i64) -> Result<()> {
        let before = self.arrivals().await?;
        let enough = || async { self.arrivals().await.is_ok_and(|now| now >= before + count) };
        within(Duration::from_secs(120), &format!("{count} more arrivals"), enough).await
    }

    /// Waits until every message is delivered or dead.
    pub async fn finished(&self, limit: Duration) -> Result<()> {
        let sql = "select count(*) from outbox_messages where status not in ('delivered', 'dead')";
        within(limit, "an end of all messages", || async { self.count(sql).await.is_ok_and(|open| open == 0) }).await
    }

    /// Status, attempts and last error of a message.
    pub async fn row(&self, id: Uuid) -> Result<(String, i32, Option<String>)> {
        let sql = "select status, attempts, last_error from outbox_messages where id = $1";
        Ok(sqlx::query_as(sql).bind(id).fetch_one(&self.pool).await?)
    }

    /// Brings the record over and checks every invariant.
    pub async fn check(&self, bounds: Bounds) -> Result<Report> {
        sqlx::raw_sql("truncate arrivals").execute(&self.pool).await?;
        let mut from = PgConnection::connect(&self.record.url()).await?;
        arrivals::import(&mut from, &mut *self.pool.acquire().await?).await?;
        let report = self.checker.check(&bounds).await?;
        println!("{report:?}");
        Ok(report)
    }
}

pub fn message(topic: &'static str, number: usize) -> Message {
    Message::json("faults", topic, &serde_json::json!({ "number": number, "ratio": 1.50 })).key(number.to_string())
}

/// A small generator, so that a failure can be run again.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
