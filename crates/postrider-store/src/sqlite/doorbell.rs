//! The doorbell: how a sleeping relay learns of a commit.
//!
//! SQLite tells nobody of a commit, but it can be asked: `pragma data_version` on a connection changes whenever another
//! connection, of whatever process, has committed. So each bell has a connection of its own that never writes:
//!
//! * A relay goes to sleep in this order: note the version (arm), look for due rows once more, sleep. While it sleeps
//!   the version is read again and again; when it changed, and there is a newer row or something due, it wakes up.
//! * A producer needs to do nothing. Also plain inserts from any language are noticed.
//!
//! No wake-up is lost: a commit before the version was noted is seen by the look after it, every later one changes the
//! version. A transaction that is open while a bell is armed does no harm, so arming never has to wait. None comes
//! before its commit, because the version changes with the commit.
//!
//! The version is read every [`ORDINARY_PACE`], which costs little (each reading is a transaction that looks into shared
//! memory, and leaves nothing open that would keep the write-ahead log from being reset). For producers in the same
//! process that would be slow, so an [`Outbox`](crate::Outbox) that was made by [`outbox`](super::SqliteStore::outbox)
//! tells the store's bells that a commit is near, and they read at once and then every millisecond for up to
//! [`NEAR_FOR`]. It is a hint only: it wakes nobody.
//!
//! [`ring`](postrider_core::store::Store::ring) wakes the bells of the same store in this process at once. It writes
//! nothing for the others: whoever rings has just claimed, that was a commit too, and other processes' bells notice it
//! at their ordinary pace and see that something is still due.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::doorbell::{Armed, Doorbell};
use postrider_core::store::{Scope, StoreError, StoreErrorKind};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Row, SqliteConnection};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::error::for_relay;
use super::run::Runner;
use super::types::Bound;
use crate::clock::Clock;
use crate::sql::Sql;

/// How often the version is read by who sleeps.
const ORDINARY_PACE: Duration = Duration::from_millis(10);
/// How often it is read when a commit is near.
const NEAR_PACE: Duration = Duration::from_millis(1);
/// How often it is read at first without any pause: a short transaction commits within a fraction of a millisecond.
const NEAR_AT_ONCE: u32 = 8;
/// For how long a commit is near, unless it comes before that.
const NEAR_FOR: Duration = Duration::from_millis(150);

/// What a store and the outboxes made from it share within a process.
pub(crate) struct Neighbours {
    /// When producers write; the store's own.
    pub clock: Arc<dyn Clock>,
    near: watch::Sender<()>,
    rung: watch::Sender<()>,
}

impl Neighbours {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, near: watch::Sender::new(()), rung: watch::Sender::new(()) }
    }

    /// Somebody wrote a message and will commit soon.
    pub fn commit_is_near(&self) {
        self.near.send_replace(());
    }

    pub fn ring(&self) {
        self.rung.send_replace(());
    }
}

impl std::fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Neighbours").field("bells", &self.rung.receiver_count()).finish_non_exhaustive()
    }
}

pub(super) struct SqliteDoorbell {
    runner: Runner,
    scope: Scope,
    /// Its own connection, outside of the pool.
    connection: Option<SqliteConnection>,
    near: watch::Receiver<()>,
    rung: watch::Receiver<()>,
    /// When it was last said that a commit is near, and how often the version was read since.
    near_since: Option<(Instant, u32)>,
    version: i64,
    newest: i64,
}

impl SqliteDoorbell {
    pub fn new(runner: Runner, neighbours: &Neighbours, scope: &Scope) -> Self {
        Self {
            runner,
            scope: scope.clone(),
            connection: None,
            near: neighbours.near.subscribe(),
            rung: neighbours.rung.subscribe(),
            near_since: None,
            version: 0,
            newest: 0,
        }
    }

    async fn ask(&mut self, sql: &Sql, arguments: SqliteArguments) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            closed => closed.insert(self.runner.pool.connect_options().connect().await?),
        };
        sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).fetch_all(connection).await
    }

    async fn try_arm(&mut self) -> Result<(), sqlx::Error> {
        self.rung.mark_unchanged();
        let rows = self.ask(&self.runner.statements.doorbell_arm.clone(), SqliteArguments::default()).await?;
        let number = |at: usize| rows.get(at).map_or(Ok(None), |row: &SqliteRow| row.try_get::<Option<i64>, _>(0));
        (self.newest, self.version) = (number(0)?.unwrap_or_default(), number(1)?.unwrap_or_default());
        Ok(())
    }

    /// Whether a commit since arming is worth waking up for.
    async fn rings(&mut self) -> Result<bool, sqlx::Error> {
        let rows = self.ask(&self.runner.statements.doorbell_version.clone(), SqliteArguments::default()).await?;
        let version = rows.first().map(|row| row.try_get::<i64, _>(0)).transpose()?.unwrap_or_default();
        if version == self.version {
            return Ok(false);
        }
        let arguments = Bound::default().scope(&self.scope).add(self.runner.clock.now_micros()).finish()?;
        let rows = self.ask(&self.runner.statements.doorbell_look.clone(), arguments).await?;
        let Some(row) = rows.first() else { return Ok(true) };
        let (newest, due): (Option<i64>, bool) = (row.try_get(0)?, row.try_get(1)?);
        if due || newest.unwrap_or_default() > self.newest {
            self.near_since = None;
            return Ok(true);
        }
        self.version = version;
        Ok(false)
    }

    /// Sleeps until the version is to be read again; whether the bell was rung meanwhile.
    async fn sleep(&mut self) -> Result<bool, StoreError> {
        let pause = match &mut self.near_since {
            Some((_, read)) if *read < NEAR_AT_ONCE => {
                *read += 1;
                None
            }
            Some((since, _)) if since.elapsed() < NEAR_FOR => Some(NEAR_PACE),
            _ => Some(ORDINARY_PACE),
        };
        let nap = async {
            match pause {
                None => yield_now().await,
                Some(pause) => sleep(pause).await,
            }
        };
        tokio::select! {
            biased;
            rung = self.rung.changed() => rung.map(|()| true).map_err(|_| gone()),
            near = self.near.changed() => {
                self.near_since = Some((Instant::now(), 0));
                near.map(|()| false).map_err(|_| gone())
            }
            () = nap => Ok(false),
        }
    }

    /// A line that failed is closed, and opened again when it is next needed.
    fn close_on_error<T>(&mut self, verb: &'static str, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        result.map_err(|error| {
            self.connection = None;
            for_relay(verb, error)
        })
    }
}

fn gone() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the doorbell's store was dropped; make a new bell from a store")
}

#[async_trait]
impl Doorbell for SqliteDoorbell {
    async fn arm(&mut self) -> Result<Armed, StoreError> {
        let armed = self.try_arm().await;
        self.close_on_error("arm the doorbell", armed)?;
        Ok(Armed::Yes)
    }

    async fn disarm(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), StoreError> {
        loop {
            let rings = self.rings().await;
            if self.close_on_error("wait for the doorbell", rings)? || self.sleep().await? {
                return Ok(());
            }
        }
    }
}
