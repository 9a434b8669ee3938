//! A table of another shape under the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use postrider::layout::{Ability, Layout, Text};
use postrider::{EnqueueError, Enqueued, Message, Operator, PostgresStore, State};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Row, Transaction};
use testkit::conformance::{Harness, LEASE, RowView};
use uuid::Uuid;

/// Promises that are not kept, by the ability that is missing.
pub type Cannot = &'static [(Ability, &'static [&'static str])];

/// A table of another shape.
pub trait Table: 'static {
    /// The layout, made fit for the messages of the suite.
    fn layout() -> Layout;
    /// What must be there before the table is made, and what is changed for the suite afterwards.
    const BEFORE: &str = "";
    const AFTER: &str = "";
    /// The columns of a row, as the suite looks at them, and from where.
    const ROWS: &str;
    /// Makes every row older by `$1` microseconds.
    const PASS_TIME: &str;
    /// Makes a row look finished, by hand.
    fn set_status(state: State) -> String;
    /// What the table cannot do: why, and the promises that are not kept because of it. A name that ends with `*` stands for all
    /// that begin so.
    const CANNOT: Cannot;
    /// Gives a message what the table needs.
    fn fit(message: Message) -> Message {
        message
    }
}

/// A database with such a table.
pub struct On<T> {
    pub store: PostgresStore,
    pub pool: PgPool,
    _table: PhantomData<T>,
}

/// A namespace for all, where the table has no column for it, and locks for as long as the suite's leases.
pub fn in_the_shop(layout: Layout) -> Layout {
    Layout { namespace: Text::Fixed { fixed: "shop".into() }, lock_timeout: LEASE, ..layout }
}

impl<T: Table> Harness for On<T> {
    type Transaction = Transaction<'static, Postgres>;

    async fn fresh() -> Self {
        let server = testkit::Postgres::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let pool = database.pool().await.expect("the database answers");
        let run = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.expect("it can be prepared");
        run(T::BEFORE).await;
        let store = PostgresStore::with_layout(pool.clone(), T::layout()).expect("the layout makes sense");
        store.migrate().await.expect("the migrations run");
        run(T::AFTER).await;
        Self { store, pool, _table: PhantomData }
    }

    fn cannot(promise: &str) -> Option<&'static str> {
        let listed = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(start) => promise.starts_with(start),
            None => promise == *pattern,
        };
        T::CANNOT.iter().find(|(_, promises)| promises.iter().any(listed)).map(|(why, _)| why.as_str())
    }

    fn can(ability: Ability) -> bool {
        T::layout().can(ability)
    }

    fn store(&self) -> Arc<dyn Operator> {
        Arc::new(self.store.clone())
    }

    async fn begin(&self) -> Self::Transaction {
        self.pool.begin().await.expect("a transaction begins")
    }

    async fn write(
        &self,
        transaction: &mut Self::Transaction,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        self.store.outbox().enqueue_many(transaction, messages.into_iter().map(T::fit)).await
    }

    async fn commit(&self, transaction: Self::Transaction) {
        transaction.commit().await.expect("it commits");
    }

    async fn roll_back(&self, transaction: Self::Transaction) {
        transaction.rollback().await.expect("it rolls back");
    }

    async fn rows(&self) -> Vec<RowView> {
        let rows = sqlx::query(T::ROWS).fetch_all(&self.pool).await.expect("the rows can be read");
        rows.iter().map(|row| view(row).expect("the columns are there")).collect()
    }

    async fn set_status(&self, id: Uuid, status: State) {
        let table = T::layout().names.table().to_owned();
        let update = format!("update {table} set {} where id = $1", T::set_status(status));
        let mut transaction = self.pool.begin().await.expect("a transaction begins");
        // Who edits a row that a claim holds by its lock would wait for as long as a lease.
        sqlx::query("set local lock_timeout = '5s'").execute(&mut *transaction).await.expect("it can be set");
        let done = sqlx::query(AssertSqlSafe(update)).bind(id).execute(&mut *transaction).await;
        let done = done.expect("the row can be edited");
        transaction.commit().await.expect("it commits");
        assert_eq!(done.rows_affected(), 1);
    }

    async fn pass_time(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).expect("tests wait for hours at most");
        sqlx::query(T::PASS_TIME).bind(micros).execute(&self.pool).await.expect("time passes");
    }

    async fn now_micros(&self) -> i64 {
        let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        sqlx::query_scalar(now).fetch_one(&self.pool).await.expect("the server knows the time")
    }
}

fn view(row: &PgRow) -> Result<RowView, sqlx::Error> {
    let micros = |name: &str| row.try_get::<Option<i64>, _>(name);
    Ok(RowView {
        id: row.try_get("id")?,
        status: State::parse(row.try_get("status")?).expect("the word is one of ours"),
        attempts: row.try_get("attempts")?,
        max_attempts: row.try_get("max_attempts")?,
        next_attempt_at: micros("next_attempt_at")?.unwrap_or_default(),
        locked_by: row.try_get("locked_by")?,
        locked_until: micros("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: micros("created_at")?.unwrap_or_default(),
        updated_at: micros("updated_at")?.unwrap_or_default(),
        delivered_at: micros("delivered_at")?,
    })
}
