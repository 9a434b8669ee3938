//! The producer's side: writing messages in the caller's own transaction.
//!
//! [`Outbox::enqueue`] takes a transaction and nothing else: a pool or an autocommit connection does not
//! implement [`CallerTransaction`], so a message cannot be written apart from the change it tells of. Input is
//! checked before SQL, and a duplicate never aborts the transaction.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) mod rounds;
#[cfg(all(feature = "sea-orm", any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
pub(crate) mod sea_orm;
#[doc(hidden)]
#[cfg(all(feature = "sea-orm", any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
pub use self::sea_orm::sqlx_error;

use std::future::Future;
use std::sync::Arc;

use postrider_core::message::{Enqueued, InvalidMessage, Limits, Message, NewRow};
use postrider_core::registry::{Registry, RegistryError};

use crate::layout::{Layout, LayoutError};
use crate::names::Names;

/// An outbox to write to: where it is, and how large messages may be. Cheap to clone; make one and keep it.
#[derive(Debug, Clone)]
pub struct Outbox {
    layout: Arc<Layout>,
    limits: Limits,
    registry: Option<Arc<Registry>>,
    #[cfg(feature = "postgres")]
    pub(crate) behind_pooler: bool,
    /// The bells and the clock of the store that this outbox was made by.
    #[cfg(feature = "sqlite")]
    pub(crate) neighbours: Option<Arc<crate::sqlite::Neighbours>>,
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(dead_code))]
    pub(crate) statements: Arc<Statements>,
}

/// What a producer runs, for each database.
#[derive(Debug)]
pub(crate) struct Statements {
    #[cfg(feature = "mysql")]
    pub mysql: crate::mysql::statements::EnqueueStatements,
    #[cfg(feature = "postgres")]
    pub postgres: crate::postgres::statements::EnqueueStatements,
    #[cfg(feature = "sqlite")]
    pub sqlite: crate::sqlite::statements::EnqueueStatements,
}

impl Statements {
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(unused_variables))]
    fn render(layout: &Layout) -> Self {
        Self {
            #[cfg(feature = "mysql")]
            mysql: crate::mysql::statements::EnqueueStatements::render(layout),
            #[cfg(feature = "postgres")]
            postgres: crate::postgres::statements::EnqueueStatements::render(layout),
            #[cfg(feature = "sqlite")]
            sqlite: crate::sqlite::statements::EnqueueStatements::render(layout),
        }
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new(Names::default())
    }
}

impl Outbox {
    /// An outbox with these names and the default limits.
    pub fn new(names: Names) -> Self {
        Self::rendered(Layout::postrider(names))
    }

    /// An outbox in a table of another shape. Refuses a layout that makes no sense.
    pub fn with_layout(layout: Layout) -> Result<Self, LayoutError> {
        layout.check()?;
        Ok(Self::rendered(layout))
    }

    pub(crate) fn rendered(layout: Layout) -> Self {
        Self {
            statements: Statements::render(&layout).into(),
            #[cfg(feature = "postgres")]
            behind_pooler: false,
            #[cfg(feature = "sqlite")]
            neighbours: None,
            limits: Limits::default(),
            registry: None,
            layout: layout.into(),
        }
    }

    /// Replaces the limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Takes only messages that tell of events of this registry, as they are registered.
    pub fn with_registry(mut self, registry: impl Into<Arc<Registry>>) -> Self {
        self.registry = Some(registry.into());
        self
    }

    /// Says that a pooler in transaction mode (PgBouncer) is between the producer and the database: sqlx then
    /// prepares no statement by name.
    #[cfg(feature = "postgres")]
    pub fn behind_pooler(mut self, yes: bool) -> Self {
        self.behind_pooler = yes;
        self
    }

    /// Tells the bells of a store in this process when a commit is near, and goes by its clock.
    #[cfg(feature = "sqlite")]
    pub(crate) fn beside(mut self, neighbours: Arc<crate::sqlite::Neighbours>) -> Self {
        self.neighbours = Some(neighbours);
        self
    }

    /// Where the outbox is.
    pub fn names(&self) -> &Names {
        &self.layout.names
    }

    /// Writes a message in the caller's transaction. It is delivered if and only if that transaction commits.
    ///
    /// With a dedupe key that is there already, nothing is written and the answer is [`Enqueued::Already`]
    /// with the id of the row that has it, also when that row came from a transaction which committed while
    /// this one waited.
    pub async fn enqueue<T: CallerTransaction>(
        &self,
        transaction: T,
        message: impl Into<Message>,
    ) -> Result<Enqueued, EnqueueError> {
        let row = self.check(0, message.into())?;
        let answers = transaction.insert(self, vec![row]).await?;
        answers.into_iter().next().ok_or(EnqueueError::KeyContended)
    }

    /// Writes many messages with one statement; one answer per message, in their order. If one message is
    /// refused, none is written.
    pub async fn enqueue_many<T: CallerTransaction, M: Into<Message>>(
        &self,
        transaction: T,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let rows = self.check_all(messages)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        transaction.insert(self, rows).await
    }

    /// Checks all messages, so that if one is refused none is written.
    pub(crate) fn check_all<M: Into<Message>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<NewRow>, EnqueueError> {
        messages.into_iter().enumerate().map(|(index, message)| self.check(index, message.into())).collect()
    }

    fn check(&self, index: usize, message: Message) -> Result<NewRow, EnqueueError> {
        let refused = |source| EnqueueError::Invalid { index, source };
        let row = message.into_row(&self.limits).map_err(refused)?;
        self.layout.fits(&row).map_err(refused)?;
        if let Some(registry) = &self.registry {
            registry.check(&row).map_err(|source| EnqueueError::NotRegistered { index, source })?;
        }
        Ok(row)
    }
}

/// A transaction that a caller has open: the only place where messages are written.
///
/// | users of | pass |
/// |---|---|
/// | sqlx | `&mut sqlx::Transaction<'_, DB>`, on PostgreSQL, MySQL and SQLite |
/// | tokio-postgres, deadpool | `&tokio_postgres::Transaction<'_>` |
/// | SeaORM | `&sea_orm::DatabaseTransaction` |
/// | diesel-async | `DieselTransaction::of(&mut connection)?`, inside `connection.transaction(…)` |
/// | rusqlite | `&rusqlite::Transaction<'_>` to `Outbox::enqueue_blocking` |
/// | tests in memory | `&mut MemoryTransaction` |
///
/// ```
/// # #[cfg(feature = "postgres")]
/// # async fn place(outbox: postrider_store::Outbox, pool: sqlx::PgPool, message: postrider_core::Message) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// outbox.enqueue(&mut transaction, message).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// A pool is not a transaction, so this does not compile:
///
/// ```compile_fail,E0277
/// # async fn place(outbox: postrider_store::Outbox, pool: sqlx::PgPool, message: postrider_core::Message) -> Result<(), Box<dyn std::error::Error>> {
/// outbox.enqueue(&pool, message).await?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that Postrider can write a message in",
    note = "pass the transaction your change is made in, by reference; a pool or a plain connection would write the message apart from it"
)]
pub trait CallerTransaction: Send {
    /// Inserts checked rows and answers for each, in their order. Called by [`Outbox`].
    fn insert(
        self,
        outbox: &Outbox,
        rows: Vec<NewRow>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send;
}

/// What an error of the producer's database driver looks like here.
pub type DriverError = Box<dyn std::error::Error + Send + Sync>;

/// An enqueue failed; nothing was written by it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The message was refused before SQL; the transaction is still usable.
    #[error("message {index} was refused: {source}")]
    Invalid {
        /// Which message of the call, counted from 0.
        index: usize,
        /// Why.
        source: InvalidMessage,
    },
    /// The message is not one of the outbox's registered events; the transaction is still usable.
    #[error("message {index} was refused: {source}")]
    NotRegistered {
        /// Which message of the call, counted from 0.
        index: usize,
        /// Why.
        source: RegistryError,
    },
    /// No transaction is open on the connection; the message would not be bound to any change.
    #[error("no transaction is open on this connection; enqueue inside the transaction that makes the change")]
    NotInTransaction,
    /// A deadlock or serialisation failure: roll the transaction back and try it again as a whole.
    #[error("the database could not serialise this transaction; roll it back and try it again")]
    Conflict(#[source] DriverError),
    /// The row that holds the dedupe key vanished each time it was looked for; try the transaction again.
    #[error("rows with this dedupe key come and go; roll the transaction back and try it again")]
    KeyContended,
    /// Row security hides the row that holds the dedupe key: one without a tenant, or of another. Trying again does not help.
    #[error(
        "the dedupe key is held by a row that this role does not see, because row security hides it; let who sees all rows delete it or change its key"
    )]
    KeyHidden,
    /// The database refused the statement; the transaction must be rolled back.
    #[error(
        "the database refused the message; check that the migrations were run and that the role may write the outbox"
    )]
    Database(#[source] DriverError),
}

impl EnqueueError {
    /// Whether the whole transaction may succeed when it is tried again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::KeyContended)
    }
}
