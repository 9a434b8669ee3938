//! The doorbell: how a sleeping relay learns of a commit, without a `NOTIFY` in every transaction.
//!
//! `NOTIFY` takes a lock across the whole server at commit, so producers must not send it while relays are busy
//! anyway. An advisory lock says whether somebody sleeps:
//!
//! * A relay goes to sleep in this order: take the *exclusive* lock at session level (arm), look for due rows
//!   once more, sleep. It holds the lock while it sleeps and gives it back when it works (disarm).
//! * A producer, in the statement that inserts, tries the *shared* lock at transaction level. If that fails a
//!   relay sleeps, and the producer sends `NOTIFY`, which takes effect at its commit. If it succeeds it stays
//!   silent, and keeps the shared lock to the end of its transaction.
//!
//! No wake-up is lost: if the producer looked before the relay had its lock, the relay cannot get the lock before
//! that transaction has ended, and its look after that sees the row; while it cannot get it, it polls briefly
//! ([`Armed::Busy`]). If the producer looked later, it rings.
//!
//! Each namespace has a lock of its own and the whole table has one more, and a producer tries both, so that a
//! relay for one namespace that works does not keep another's bell silent. Of several relays with the same scope
//! one holds the lock, the others see in `pg_locks` that a relay has it and sleep on the bell as well.
//!
//! Through a pooler in transaction mode neither session locks nor `LISTEN` work, and a session lock would stay
//! behind on a connection that is not ours. So before any lock is taken, a ring is sent from another connection
//! and must arrive here; if it does not, there is no bell and the relay polls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::doorbell::{Armed, Doorbell};
use postrider_core::store::{Scope, StoreError, StoreErrorKind};
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::error::for_relay;
use super::run::Runner;
use super::statements::{CHANNEL, StoreStatements};

/// How long the test ring may take to arrive.
const TEST_LIMIT: Duration = Duration::from_secs(2);
/// How long a connection that only listens is trusted before it is asked whether it still lives.
const TRUSTED: Duration = Duration::from_secs(15);

pub(super) struct PgDoorbell {
    runner: Runner,
    statements: Arc<StoreStatements>,
    bell: String,
    locks: Vec<String>,
    line: Line,
}

enum Line {
    Closed,
    Open(OpenLine),
    /// Rings do not arrive here.
    Deaf,
}

struct OpenLine {
    listener: PgListener,
    asleep: bool,
    held: Vec<String>,
    checked: Instant,
}

impl PgDoorbell {
    pub fn new(runner: Runner, statements: Arc<StoreStatements>, bell: String, scope: &Scope) -> Self {
        let locks = match &scope.namespaces {
            None => vec![bell.clone()],
            Some(names) => names.iter().map(|name| format!("{bell}:{name}")).collect(),
        };
        let line = if runner.behind_pooler { Line::Deaf } else { Line::Closed };
        Self { runner, statements, bell, locks, line }
    }

    /// Connects, listens, and makes sure that rings arrive.
    async fn open(&mut self) -> Result<(), sqlx::Error> {
        // A connection outside of the pool: one that went silent must not keep the pool from being closed.
        let options = (*self.runner.pool.connect_options()).clone();
        let own = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&own).await?;
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        let word = format!(" test {}", Uuid::new_v4());
        // From another connection than the one that listens.
        let rung = self.runner.ring(&self.statements.doorbell_ring, &word).await;
        rung.map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
        let expected = format!("{}{word}", self.bell);
        let arrived = timeout(TEST_LIMIT, async {
            while let Some(ring) = listener.try_recv().await? {
                if ring.payload() == expected {
                    return Ok(true);
                }
            }
            Ok::<_, sqlx::Error>(false)
        });
        match arrived.await {
            Ok(Ok(true)) => {
                self.line = Line::Open(OpenLine { listener, asleep: false, held: Vec::new(), checked: Instant::now() });
            }
            Ok(Ok(false)) => return Err(sqlx::Error::PoolClosed),
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                tracing::warn!(bell = %self.bell, "no ring arrives over this connection, a transaction pooler may be in between; polling instead");
                self.line = Line::Deaf;
            }
        }
        Ok(())
    }

    async fn try_arm(&mut self) -> Result<Armed, sqlx::Error> {
        if matches!(self.line, Line::Closed) {
            self.open().await?;
        }
        let Line::Open(line) = &mut self.line else { return Ok(Armed::Never) };
        if line.asleep {
            line.check().await?;
            return Ok(Armed::Yes);
        }
        let query = sqlx::query_as::<_, (String, bool, bool)>(AssertSqlSafe(self.statements.doorbell_arm.clone()));
        let locks = query.bind(&self.locks).fetch_all(&mut line.listener).await?;
        line.held = locks.iter().filter(|(_, got, _)| *got).map(|(name, ..)| name.clone()).collect();
        line.checked = Instant::now();
        if locks.iter().all(|(_, got, held_by_relay)| *got || *held_by_relay) {
            line.asleep = true;
            return Ok(Armed::Yes);
        }
        line.give_back(&self.statements).await?;
        Ok(Armed::Busy)
    }

    /// A line that failed is closed. The server frees its locks with the connection.
    fn close_on_error<T>(&mut self, verb: &'static str, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        result.map_err(|error| {
            if let Line::Open(_) = self.line {
                self.line = Line::Closed;
            }
            for_relay(verb, error)
        })
    }
}

impl OpenLine {
    async fn give_back(&mut self, statements: &StoreStatements) -> Result<(), sqlx::Error> {
        self.asleep = false;
        if self.held.is_empty() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        sqlx::query(AssertSqlSafe(statements.doorbell_disarm.clone())).bind(held).execute(&mut self.listener).await?;
        Ok(())
    }

    async fn check(&mut self) -> Result<(), sqlx::Error> {
        if self.checked.elapsed() > TRUSTED {
            self.listener.execute("select 1").await?;
            self.checked = Instant::now();
        }
        Ok(())
    }

    /// Reads what rang while nobody slept: a listener that does not read holds back the server's queue.
    async fn drain(&mut self) -> Result<(), sqlx::Error> {
        while let Ok(ring) = timeout(Duration::ZERO, self.listener.try_recv()).await {
            ring?.ok_or(sqlx::Error::PoolClosed)?;
        }
        Ok(())
    }
}

#[async_trait]
impl Doorbell for PgDoorbell {
    async fn arm(&mut self) -> Result<Armed, StoreError> {
        let armed = self.try_arm().await;
        self.close_on_error("arm the doorbell", armed)
    }

    async fn disarm(&mut self) -> Result<(), StoreError> {
        let Line::Open(line) = &mut self.line else { return Ok(()) };
        let done = match line.asleep {
            true => line.give_back(&self.statements).await,
            false => line.drain().await,
        };
        self.close_on_error("disarm the doorbell", done)
    }

    async fn wait(&mut self) -> Result<(), StoreError> {
        let Line::Open(line) = &mut self.line else { return std::future::pending().await };
        loop {
            match line.listener.try_recv().await {
                Ok(Some(ring)) if ring.payload() == self.bell => return Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.line = Line::Closed;
                    return Err(StoreError::new(
                        StoreErrorKind::Unavailable,
                        "the doorbell's connection was lost; it is opened again",
                    ));
                }
                Err(error) => return self.close_on_error("wait for the doorbell", Err(error)),
            }
        }
    }
}
