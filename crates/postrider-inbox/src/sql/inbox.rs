//! The inbox on a pool: it opens the transaction, and the guard holds it.

use std::fmt;
use std::time::Duration;

use sqlx::{Pool, Transaction};
use uuid::Uuid;

use super::database::Database;
use super::enter::{Entered, Sqlx, enter, insert, key};
use super::tables::{InboxTables, micros};
use super::{Failed, Kind, Value};
use crate::{ConsumerName, Delivery, Entry, Guard, Inbox, InboxError};

/// An inbox in a SQL database: `PostgresInbox`, `MySqlInbox` or `SqliteInbox`. Cheap to clone.
///
/// Each guard holds a connection of the pool until it is settled, and so does each handler that writes elsewhere.
///
/// ```
/// # #[cfg(feature = "postgres")]
/// # async fn on_message(pool: sqlx::PgPool, delivery: postrider_inbox::Delivery) -> Result<(), Box<dyn std::error::Error>> {
/// use postrider_inbox::{InboxTables, PostgresGuard, PostgresInbox, run_once};
///
/// let inbox = PostgresInbox::new(pool, InboxTables::default());
/// inbox.migrate().await?;
/// let once = run_once(&inbox, &delivery, async |guard: &mut PostgresGuard| {
///     // What is written here is there if and only if the event counts as processed.
///     sqlx::query("update stock set pieces = pieces - 1").execute(&mut **guard.transaction()).await
/// });
/// if once.await?.may_ack() {
///     // Acknowledge the message.
/// }
/// # Ok(())
/// # }
/// ```
pub struct SqlInbox<DB: Database> {
    pub(super) pool: Pool<DB>,
    pub(super) tables: InboxTables,
}

impl<DB: Database> SqlInbox<DB> {
    /// An inbox in the database of this pool.
    pub fn new(pool: Pool<DB>, tables: InboxTables) -> Self {
        Self { pool, tables }
    }

    /// Makes the tables unless they are there, see [`InboxTables::migrate`].
    pub async fn migrate(&self) -> Result<(), InboxError> {
        self.tables.migrate(&self.pool).await
    }

    /// The tables and settings.
    pub fn tables(&self) -> &InboxTables {
        &self.tables
    }

    /// The pool.
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Remembers which attempt a delivery is, if it says so, unless a newer one was seen. [`begin`](Inbox::begin) does this
    /// itself; call it before a transaction of your own. It is written apart from every transaction, so that it is seen
    /// although the handler fails.
    pub async fn note_attempt(&self, delivery: &Delivery) -> Result<(), InboxError> {
        Ok(self.note(delivery).await?)
    }

    async fn note(&self, delivery: &Delivery) -> Result<(), Failed> {
        let Some(attempt) = delivery.attempt else { return Ok(()) };
        let [consumer, event] = key(delivery);
        let [replayed, number] = [attempt.replayed, attempt.number].map(|number| Value::Number(number.into()));
        let values = [consumer, event, replayed, number, Value::Number(micros(self.tables.keep()))];
        let mut connection = self.pool.acquire().await.map_err(DB::failed)?;
        DB::change(&mut connection, &self.tables.statements::<DB>().note, &values).await?;
        Ok(())
    }

    async fn is_processed(&self, delivery: &Delivery) -> Result<bool, Failed> {
        let mut connection = self.pool.acquire().await.map_err(DB::failed)?;
        is_there::<DB>(&mut connection, &self.tables, delivery).await
    }

    /// Notes the attempt and begins a transaction.
    async fn open(&self, delivery: &Delivery) -> Result<Transaction<'static, DB>, Failed> {
        self.note(delivery).await?;
        match DB::BEGIN {
            None => self.pool.begin().await,
            Some(statement) => self.pool.begin_with(statement).await,
        }
        .map_err(DB::failed)
    }
}

async fn is_there<DB: Database>(
    connection: &mut DB::Connection,
    tables: &InboxTables,
    delivery: &Delivery,
) -> Result<bool, Failed> {
    let rows = DB::ask(connection, &tables.statements::<DB>().there, &key(delivery)).await?;
    Ok(!rows.is_empty())
}

impl<DB: Database> Inbox for SqlInbox<DB> {
    type Guard = SqlGuard<DB>;

    async fn begin(&self, delivery: &Delivery) -> Result<Entry<SqlGuard<DB>>, InboxError> {
        if DB::LOOK_FIRST && self.is_processed(delivery).await? {
            return Ok(Entry::AlreadyProcessed);
        }
        let mut transaction = match self.open(delivery).await {
            Err(Failed { kind: Kind::Held, .. }) => return Ok(Entry::InProgress(Duration::ZERO)),
            opened => opened?,
        };
        let entry = match enter(&mut Sqlx::<DB>(&mut transaction), &self.tables, delivery).await? {
            Entry::First(()) => {
                let (tables, delivery) = (self.tables.clone(), delivery.clone());
                return Ok(Entry::First(SqlGuard { transaction, tables, delivery }));
            }
            Entry::InProgress(remaining) => Entry::InProgress(remaining),
            Entry::AlreadyProcessed => Entry::AlreadyProcessed,
            Entry::Stale { seen } => Entry::Stale { seen },
        };
        // Nothing was written, so the answer holds also if the connection breaks now.
        let _ = transaction.rollback().await;
        Ok(entry)
    }

    /// See [`Inbox::check_and_mark_processed`]. With [`Meanwhile::Wait`](crate::Meanwhile::Wait) it waits for a guard
    /// that holds the event.
    async fn check_and_mark_processed(
        &self,
        consumer: &ConsumerName,
        event: Uuid,
        ttl: Duration,
    ) -> Result<bool, InboxError> {
        let delivery = Delivery::new(consumer.clone(), event);
        if DB::LOOK_FIRST && self.is_processed(&delivery).await? {
            return Ok(true);
        }
        let mut connection = self.pool.acquire().await.map_err(DB::failed)?;
        // One statement is a transaction of its own.
        let statements = self.tables.statements::<DB>();
        match insert(&mut Sqlx::<DB>(&mut connection), statements, &delivery, ttl).await? {
            Entered::First => Ok(false),
            Entered::AlreadyProcessed => Ok(true),
            Entered::InProgress => Err(InboxError::InProgress { event }),
        }
    }
}

impl<DB: Database> Clone for SqlInbox<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), tables: self.tables.clone() }
    }
}

impl<DB: Database> fmt::Debug for SqlInbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlInbox").field("database", &DB::NAME).field("messages", &self.tables.messages()).finish()
    }
}

/// The right to handle an event, and the transaction to write the effect in. Dropped, it is rolled back.
pub struct SqlGuard<DB: Database> {
    transaction: Transaction<'static, DB>,
    tables: InboxTables,
    delivery: Delivery,
}

impl<DB: Database> SqlGuard<DB> {
    /// The transaction that the event was entered in. What is written in it is there if and only if the event counts as
    /// processed. Leave its commit to the guard.
    pub fn transaction(&mut self) -> &mut Transaction<'static, DB> {
        &mut self.transaction
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the transaction of event {0} was ended while it was handled, by a statement that failed or by one that commits or rolls back; the handler must not pass over errors of the transaction, nor end it"
)]
struct Ended(Uuid);

impl<DB: Database> Guard for SqlGuard<DB> {
    /// Commits the effect and the row together. If the answer is lost the error is [`InboxError::Unavailable`], and the
    /// next delivery finds out whether it was committed.
    ///
    /// An error that the handler has passed over may have undone the transaction without a word, and a commit would succeed
    /// with nothing in it; so the row is looked for before.
    async fn commit(mut self) -> Result<(), InboxError> {
        let there = is_there::<DB>(&mut self.transaction, &self.tables, &self.delivery).await;
        match there {
            Ok(true) => Ok(self.transaction.commit().await.map_err(DB::failed)?),
            Err(failed) if failed.kind != Kind::Refused => Err(failed.into()),
            Ok(false) | Err(_) => Err(InboxError::Failed(Box::new(Ended(self.delivery.event)))),
        }
    }

    async fn release(self) -> Result<(), InboxError> {
        Ok(self.transaction.rollback().await.map_err(DB::failed)?)
    }
}

impl<DB: Database> fmt::Debug for SqlGuard<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlGuard").field("database", &DB::NAME).field("delivery", &self.delivery).finish()
    }
}
