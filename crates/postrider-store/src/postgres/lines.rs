//! The connections a relay works on, kept from one statement to the next.
//!
//! A pool asks a connection whether it lives whenever it is taken and whenever it is returned, which makes three
//! round trips of one statement, and it asks without a time limit. So the few connections that a relay needs are
//! taken from the pool once and kept. One whose statement was cut off or failed is torn down on the spot and its
//! place in the pool is free again; when the pool is closed, the idle ones go back to it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

/// How many connections are kept: a dispatcher claims, settles, keeps leases and maintains at the same time.
const KEPT: usize = 4;

/// Connections between two statements.
#[derive(Debug, Default)]
struct Idle(Mutex<Vec<PoolConnection<Postgres>>>);

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Vec<PoolConnection<Postgres>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // A connection can be returned to its pool within the runtime only, and a store may outlive that.
        self.lock().drain(..).for_each(|connection| drop(connection.detach()));
    }
}

#[derive(Debug, Clone)]
pub(super) struct Lines {
    pool: PgPool,
    idle: Arc<Idle>,
    watched: Arc<OnceLock<()>>,
}

/// A connection in use. Dropping it without [`keep`](Self::keep) tears it down.
pub(super) struct Line {
    connection: Option<PoolConnection<Postgres>>,
    lines: Lines,
}

impl Lines {
    pub fn new(pool: PgPool) -> Self {
        Self { pool, idle: Arc::default(), watched: Arc::default() }
    }

    pub async fn take(&self) -> Result<Line, sqlx::Error> {
        self.watched.get_or_init(|| self.give_up_when_closed());
        let kept = self.idle.lock().pop();
        let connection = match kept {
            Some(connection) if !self.pool.is_closed() => connection,
            _ => self.pool.acquire().await?,
        };
        Ok(Line { connection: Some(connection), lines: self.clone() })
    }

    /// A pool that is being closed waits for its connections.
    fn give_up_when_closed(&self) {
        let (closed, idle) = (self.pool.close_event(), Arc::downgrade(&self.idle));
        tokio::spawn(async move {
            closed.await;
            if let Some(idle) = idle.upgrade() {
                idle.lock().clear();
            }
        });
    }
}

impl Line {
    /// Keeps the connection for the next statement.
    pub fn keep(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let mut idle = self.lines.idle.lock();
        if idle.len() < KEPT && !self.lines.pool.is_closed() {
            idle.push(connection);
        }
    }
}

impl Deref for Line {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("a line has its connection until it is kept or dropped")
    }
}

impl DerefMut for Line {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("a line has its connection until it is kept or dropped")
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Detached from the pool it is simply closed; returned, the pool would wait for an answer that may never come.
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}
