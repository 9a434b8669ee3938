//! An outbox by its URL, whatever database it is on, for programs that run on all of them.
//!
//! Nothing here ever puts the URL, its user or its password into an error: what goes wrong is told by kind.

mod connect;
mod ping;
mod tenant;

use std::sync::Arc;

use postrider_core::message::{Enqueued, Message};
use postrider_core::operate::{Finding, Operator};
use postrider_core::store::{Capabilities, Store, StoreError, StoreErrorKind};

pub use crate::migration::Pending;
pub use connect::Connect;

use crate::enqueue::EnqueueError;
use crate::examine::Thresholds;
use crate::grants::Roles;
use crate::layout::Layout;
use crate::layout::guess::Guess;
#[cfg(feature = "mysql")]
use crate::mysql::MySqlStore;
#[cfg(feature = "postgres")]
use crate::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
use crate::sqlite::SqliteStore;

/// A store of any database. Cheap to clone.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum AnyStore {
    #[cfg(feature = "postgres")]
    Postgres(PostgresStore),
    #[cfg(feature = "mysql")]
    MySql(MySqlStore),
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteStore),
}

/// Runs an expression for the store of each database.
macro_rules! on_each {
    ($any:expr, $store:ident => $body:expr) => {
        match $any {
            #[cfg(feature = "postgres")]
            AnyStore::Postgres($store) => $body,
            #[cfg(feature = "mysql")]
            AnyStore::MySql($store) => $body,
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite($store) => $body,
        }
    };
}

impl AnyStore {
    /// Opens the outbox at a URL: `postgres://`, `mysql://`, `mariadb://` or `sqlite:`.
    ///
    /// PostgreSQL and MySQL are connected to when something is asked of them, so that a relay can start while its
    /// database is down; [`ping`](Self::ping) says whether they answer. An SQLite file is opened at once.
    pub async fn connect(url: &str, options: &Connect) -> Result<Self, StoreError> {
        connect::open(url, options).await
    }

    /// Connects once, within the connect time limit, and says clearly why it cannot.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => ping::postgres(store.pool()).await,
            #[cfg(feature = "mysql")]
            Self::MySql(store) => ping::mysql(store.pool()).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => ping::sqlite(store.pool()).await,
        }
    }

    /// Closes the connections, after waiting for what uses them.
    pub async fn close(&self) {
        on_each!(self, store => store.pool().close().await)
    }

    /// Which database it is: `postgres`, `mysql` or `sqlite`.
    pub fn kind(&self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgres",
            #[cfg(feature = "mysql")]
            Self::MySql(_) => "mysql",
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => "sqlite",
        }
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        on_each!(self, store => store.capabilities())
    }

    /// The store, as a relay sees it.
    pub fn store(&self) -> Arc<dyn Store> {
        on_each!(self, store => Arc::new(store.clone()))
    }

    /// The store, as its operator sees it.
    pub fn operator(&self) -> Arc<dyn Operator> {
        on_each!(self, store => Arc::new(store.clone()))
    }

    /// Brings the schema up to date and answers which versions were run; safe to call from every process.
    pub async fn migrate(&self) -> Result<Vec<i32>, StoreError> {
        on_each!(self, store => store.migrate().await)
    }

    /// The SQL of all versions, for teams that run their migrations with a tool of their own. MySQL's is for the
    /// `mysql` and `mariadb` programs, which need to be told where a procedure ends.
    pub fn script(&self) -> String {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => crate::postgres::migrate::script(store.layout()),
            #[cfg(feature = "mysql")]
            Self::MySql(store) => crate::mysql::migrate::script_text(store.layout()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => crate::sqlite::migrate::script(store.layout()),
        }
    }

    /// What [`migrate`](Self::migrate) would run now. Writes nothing, also where there is no outbox yet.
    pub async fn pending(&self) -> Result<Vec<Pending>, StoreError> {
        on_each!(self, store => store.pending().await)
    }

    /// Refuses a database whose schema is not the one that this library writes and reads, and on MySQL a session that
    /// would change data silently. A table of another layout has no versions of ours: it must have the columns of the layout, with
    /// types that can be used. For who works with messages; a relay asks [`check_relay`](Self::check_relay).
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        #[cfg(feature = "mysql")]
        #[allow(irrefutable_let_patterns)] // where MySQL is the only database
        if let Self::MySql(store) = self {
            store.check().await?;
        }
        if !self.layout().is_ours() {
            on_each!(self, store => store.refuse_other_tables().await)?;
            // What we have beside somebody else's table on PostgreSQL is for operators; a relay goes without.
            if self.kind() == "postgres" {
                return Ok(());
            }
        }
        match self.pending().await?.first() {
            None => Ok(()),
            Some((1, ..)) => {
                Err(StoreError::new(StoreErrorKind::Schema, "the database has no outbox yet; run postrider migrate"))
            }
            Some((version, name, _)) => Err(StoreError::new(
                StoreErrorKind::Schema,
                format!("the outbox lacks version {version} ({name}) of its schema; run postrider migrate"),
            )),
        }
    }

    /// [`check_schema`](Self::check_schema) for the start of a relay: on PostgreSQL it also refuses a role from which row security hides
    /// rows, because such a relay would find nothing to do and say that it is well.
    pub async fn check_relay(&self) -> Result<(), StoreError> {
        self.check_schema().await?;
        #[cfg(feature = "postgres")]
        if let Self::Postgres(store) = self {
            store.refuse_parts().await?;
            store.refuse_missing_privileges().await?;
        }
        self.check_row_security().await
    }

    /// What the outbox's table looks like.
    pub fn layout(&self) -> Layout {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.layout().clone(),
            #[cfg(feature = "mysql")]
            Self::MySql(store) => store.layout().clone(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.layout().clone(),
        }
    }

    /// Compares the table with its layout: what is missing, wrong or slow. Changes nothing.
    pub async fn check_layout(&self) -> Result<Vec<Finding>, StoreError> {
        self.ping().await?;
        on_each!(self, store => store.check_layout().await)
    }

    /// Reads the catalog's description of the table that the names say, and proposes a layout for it; none if there is no such table.
    pub async fn guess_layout(&self) -> Result<Option<Guess>, StoreError> {
        self.ping().await?;
        on_each!(self, store => store.guess_layout().await)
    }

    /// Text that gives the roles of an outbox what they need and nothing else: SQL for its owner to run, and on SQLite
    /// what the file needs.
    pub fn grants(&self, roles: &Roles) -> String {
        on_each!(self, store => store.grants(roles))
    }

    /// [`grants`](Self::grants) for an outbox whose tenants are kept apart by row-level security: on PostgreSQL the producer gets nothing of
    /// the changelog, whose entries have no tenant.
    pub fn grants_with_row_security(&self, roles: &Roles) -> String {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.grants_with_row_security(roles),
            #[allow(unreachable_patterns)] // where PostgreSQL is the only database
            _ => self.grants(roles),
        }
    }

    /// Looks for what is set up wrong, and says how to mend it. Changes nothing.
    pub async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.examine_within(&Thresholds::default()).await
    }

    /// [`examine`](Self::examine) with other thresholds.
    pub async fn examine_within(&self, thresholds: &Thresholds) -> Result<Vec<Finding>, StoreError> {
        self.ping().await?;
        on_each!(self, store => store.examine_within(thresholds).await)
    }

    /// Writes messages in a transaction of their own; one answer per message, in their order. If one is refused, none is
    /// written. For tools: an application enqueues in the transaction that makes its change.
    pub async fn enqueue(&self, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
        on_each!(self, store => {
            let failed = |error| EnqueueError::Database(store.failed(error).into());
            let mut transaction = store.begin().await.map_err(failed)?;
            let enqueued = store.outbox().enqueue_many(&mut transaction, messages).await?;
            transaction.commit().await.map_err(failed)?;
            Ok(enqueued)
        })
    }
}
