//! The inbox on a pool: it opens the transaction, and the guard holds it.

use std::fmt;
use std::time::Duration;

use sqlx::{Connection, Pool, SqlSafeStr, Transaction};
use uuid::Uuid;

use super::database::Database;
use super::enter::{Entered, Sqlx, enter_for, insert, key, leave};
use super::tables::{InboxTables, micros};
use super::{Failed, Kind, Statement, Statements, Value};
use crate::{ConsumerName, Delivery, Entry, Guard, Inbox, InboxError};

/// An inbox in a SQL database: `PostgresInbox`, `MySqlInbox` or `SqliteInbox`. Cheap to clone.
///
/// Each guard holds a connection of the pool until it is settled, so the pool's size limits how many events are handled at
/// once.
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
        let statements = self.tables.statements::<DB>()?;
        Ok(self.note(statements, delivery).await?)
    }

    async fn note(&self, statements: &Statements, delivery: &Delivery) -> Result<(), Failed> {
        let Some(attempt) = delivery.attempt else { return Ok(()) };
        let [consumer, event] = key(delivery);
        let [replayed, number] = [attempt.replayed, attempt.number].map(|number| Value::Number(number.into()));
        let values = [consumer, event, replayed, number, Value::Number(micros(self.tables.keep()))];
        let mut connection = self.pool.acquire().await.map_err(DB::failed)?;
        DB::change(&mut connection, &statements.note, &values).await?;
        Ok(())
    }

    /// Looks for a processed event before anything is written.
    async fn look_first(&self, statements: &Statements, delivery: &Delivery) -> Result<Option<Entered>, Failed> {
        if !DB::LOOK_FIRST {
            return Ok(None);
        }
        let look = async {
            // A new connection may be told that the file is busy, too.
            let mut connection = self.pool.acquire().await.map_err(DB::failed)?;
            DB::ask(&mut connection, &statements.there, &key(delivery)).await
        };
        match look.await {
            Err(Failed { kind: Kind::Held, .. }) => Ok(Some(Entered::InProgress)),
            rows => Ok((!rows?.is_empty()).then_some(Entered::AlreadyProcessed)),
        }
    }

    /// Notes the attempt and begins a transaction.
    async fn open(&self, statements: &Statements, delivery: &Delivery) -> Result<Transaction<'static, DB>, Failed> {
        self.note(statements, delivery).await?;
        let Some(statement) = DB::BEGIN else { return self.pool.begin().await.map_err(DB::failed) };
        loop {
            let connection = self.pool.acquire().await.map_err(DB::failed)?;
            // Of a guard that was dropped, or whose commit failed, after the database had ended the transaction: sqlx takes
            // it for open.
            if connection.is_in_transaction() {
                let _ = connection.close().await;
                continue;
            }
            return Transaction::begin(connection, Some(statement.into_sql_str())).await.map_err(DB::failed);
        }
    }
}

/// How long to keep what a guard enters: the setting and a fraction of a second by chance, by which the guard knows its row.
fn own_keep(tables: &InboxTables) -> Duration {
    let chance = u64::try_from(Uuid::now_v7().as_u128() % 1_000_000).unwrap_or_default();
    tables.keep() + Duration::from_micros(chance)
}

impl<DB: Database> Inbox for SqlInbox<DB> {
    type Guard = SqlGuard<DB>;

    async fn begin(&self, delivery: &Delivery) -> Result<Entry<SqlGuard<DB>>, InboxError> {
        let statements = self.tables.statements::<DB>()?;
        match self.look_first(statements, delivery).await? {
            Some(Entered::AlreadyProcessed) => return Ok(Entry::AlreadyProcessed),
            Some(Entered::InProgress) => return Ok(Entry::InProgress(Duration::ZERO)),
            _ => {}
        }
        let mut transaction = match self.open(statements, delivery).await {
            Err(Failed { kind: Kind::Held, .. }) => return Ok(Entry::InProgress(Duration::ZERO)),
            opened => opened?,
        };
        let keep = own_keep(&self.tables);
        let entry = match enter_for(&mut Sqlx::<DB>(&mut transaction), &self.tables, delivery, keep).await {
            Err(error) => {
                let _ = roll_back(transaction).await;
                return Err(error);
            }
            Ok(Entry::First(())) => {
                let (inbox, delivery) = (self.clone(), delivery.clone());
                return Ok(Entry::First(SqlGuard { transaction, inbox, delivery, keep }));
            }
            Ok(Entry::InProgress(remaining)) => Entry::InProgress(remaining),
            Ok(Entry::AlreadyProcessed) => Entry::AlreadyProcessed,
            Ok(Entry::Stale { seen }) => Entry::Stale { seen },
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
        self.tables.check_keep(ttl)?;
        let statements = self.tables.statements::<DB>()?;
        match self.look_first(statements, &delivery).await? {
            Some(Entered::AlreadyProcessed) => return Ok(true),
            Some(Entered::InProgress) => return Err(InboxError::InProgress { event }),
            _ => {}
        }
        let mut connection = self.pool.acquire().await.map_err(DB::failed)?;
        // One statement is a transaction of its own.
        match insert(&mut Sqlx::<DB>(&mut connection), statements, &delivery, ttl).await {
            Ok(Entered::First) => Ok(false),
            Ok(Entered::AlreadyProcessed | Entered::Refused) => Ok(true),
            Ok(Entered::InProgress) => Err(InboxError::InProgress { event }),
            Err(error) => {
                // PostgreSQL tells of an error before it lets go of the event, and who tries again at once would find it held.
                let _ = connection.ping().await;
                Err(error)
            }
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
    inbox: SqlInbox<DB>,
    delivery: Delivery,
    /// How long its row is kept, by which it is known.
    keep: Duration,
}

impl<DB: Database> SqlGuard<DB> {
    /// The transaction that the event was entered in. What is written in it is there if and only if the event counts as
    /// processed. Leave its commit to the guard.
    ///
    /// A handler must not commit, nor run what commits by itself, as `truncate` and `create table` do on MySQL: the event
    /// then counts as processed before it is. If such a handler fails, [`release`](Guard::release) takes the event back,
    /// and what was committed is done twice; if the guard is dropped or the process is killed, the event is lost.
    pub fn transaction(&mut self) -> &mut Transaction<'static, DB> {
        &mut self.transaction
    }

    /// Takes back the row if the handler, which failed, has committed it, and says so.
    async fn take_back(inbox: SqlInbox<DB>, delivery: Delivery, keep: Duration) -> Result<(), InboxError> {
        let [consumer, event] = key(&delivery);
        let statements = inbox.tables.statements::<DB>()?;
        let mut connection = inbox.pool.acquire().await.map_err(DB::failed)?;
        let ours = [consumer, event, Value::Number(micros(keep))];
        if DB::ask(&mut connection, &statements.ours, &ours).await?.is_empty() {
            return Ok(());
        }
        leave(&mut Sqlx::<DB>(&mut connection), &inbox.tables, &delivery).await?;
        let Delivery { event, consumer, .. } = delivery;
        tracing::error!(%event, %consumer, "a handler failed after its transaction was committed; the event was taken back, and what was committed is done again");
        Err(InboxError::Failed(Committed(event).into()))
    }
}

/// Rolls back, also if the database has ended the transaction by itself.
async fn roll_back<DB: Database>(mut transaction: Transaction<'static, DB>) -> Result<(), Failed> {
    if let Some(sql) = DB::REOPEN {
        // It fails if the transaction is open, as it should be.
        let begin = Statement { sql: sql.into(), persistent: false };
        let _ = DB::change(&mut transaction, &begin, &[]).await;
    }
    transaction.rollback().await.map_err(DB::failed)
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the transaction of event {0} was ended while it was handled, by a statement that failed or by one that commits or rolls back; the handler must not pass over errors of the transaction, nor end it"
)]
struct Ended(Uuid);

#[derive(Debug, thiserror::Error)]
#[error(
    "the handler of event {0} failed after its transaction was committed, by the handler or by a statement that commits, as truncate does on MySQL; the event was taken back, and what was committed is done again"
)]
struct Committed(Uuid);

impl<DB: Database> Guard for SqlGuard<DB> {
    /// Commits the effect and the row together. If the answer is lost the error is [`InboxError::Unavailable`], and the
    /// next delivery finds out whether it was committed.
    ///
    /// An error that the handler has passed over may have undone the transaction without a word, and a commit would succeed
    /// with nothing in it; so the row is looked for before. If it is gone the error is [`InboxError::Conflict`].
    async fn commit(mut self) -> Result<(), InboxError> {
        let statements = self.inbox.tables.statements::<DB>()?;
        let failed = match DB::ask(&mut self.transaction, &statements.there, &key(&self.delivery)).await {
            Ok(rows) if !rows.is_empty() => return Ok(self.transaction.commit().await.map_err(DB::failed)?),
            Err(failed) if failed.kind != Kind::Refused => failed.into(),
            Ok(_) | Err(_) => InboxError::Conflict(Ended(self.delivery.event).into()),
        };
        let _ = roll_back(self.transaction).await;
        Err(failed)
    }

    /// Rolls back. If the handler has committed, the row is deleted and the error says so.
    async fn release(self) -> Result<(), InboxError> {
        let Self { transaction, inbox, delivery, keep } = self;
        roll_back(transaction).await?;
        Self::take_back(inbox, delivery, keep).await
    }
}

impl<DB: Database> fmt::Debug for SqlGuard<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlGuard").field("database", &DB::NAME).field("delivery", &self.delivery).finish()
    }
}
