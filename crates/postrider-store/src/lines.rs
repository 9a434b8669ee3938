//! The connections a relay works on, kept from one statement to the next.
//!
//! A pool asks a connection whether it lives whenever it is taken and whenever it is returned, which makes three
//! round trips of one statement, and it asks without a time limit. So the few connections that a relay needs are
//! taken from the pool once and kept. One whose statement was cut off or failed is torn down on the spot and its
//! place in the pool is free again; when the pool is closed, the idle ones go back to it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

/// The most connections that are kept: a dispatcher claims, settles, renews and maintains at the same time.
const MOST_KEPT: usize = 4;
/// How old a kept connection may become before it goes back to the pool and its rules.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);
/// How long a kept connection may be without use; servers and firewalls end idle ones without a word, and the pool asks.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// Connections between two statements.
#[derive(Debug)]
struct Idle<DB: Database>(Mutex<Vec<Kept<DB>>>);

#[derive(Debug)]
struct Kept<DB: Database> {
    since: Instant,
    used: Instant,
    connection: PoolConnection<DB>,
}

impl<DB: Database> Idle<DB> {
    fn lock(&self) -> MutexGuard<'_, Vec<Kept<DB>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<DB: Database> Drop for Idle<DB> {
    fn drop(&mut self) {
        // A connection can be returned to its pool within the runtime only, and a store may outlive that.
        self.lock().drain(..).for_each(|kept| drop(kept.connection.detach()));
    }
}

#[derive(Debug)]
pub(crate) struct Lines<DB: Database> {
    pool: Pool<DB>,
    /// Less than half of the pool, so that whoever shares it is not starved.
    kept: usize,
    idle: Arc<Idle<DB>>,
    watched: Arc<OnceLock<()>>,
}

/// A connection in use. Dropping it without [`keep`](Self::keep) tears it down.
pub(crate) struct Line<DB: Database> {
    kept: Option<Kept<DB>>,
    #[cfg_attr(not(feature = "mysql"), allow(dead_code))]
    is_new: bool,
    lines: Lines<DB>,
}

impl<DB: Database> Clone for Lines<DB> {
    fn clone(&self) -> Self {
        let (pool, idle, watched) = (self.pool.clone(), self.idle.clone(), self.watched.clone());
        Self { pool, kept: self.kept, idle, watched }
    }
}

impl<DB: Database> Lines<DB> {
    pub fn new(pool: Pool<DB>) -> Self {
        let kept = (pool.options().get_max_connections() as usize).saturating_sub(1) / 2;
        Self { kept: kept.min(MOST_KEPT), pool, idle: Arc::new(Idle(Mutex::default())), watched: Arc::default() }
    }

    pub async fn take(&self) -> Result<Line<DB>, sqlx::Error> {
        self.watched.get_or_init(|| self.give_up_when_closed());
        let kept = self.pop();
        let (kept, is_new) = match kept {
            Some(kept) if !self.pool.is_closed() => (kept, false),
            _ => {
                let (connection, now) = (self.pool.acquire().await?, Instant::now());
                (Kept { since: now, used: now, connection }, true)
            }
        };
        Ok(Line { kept: Some(kept), is_new, lines: self.clone() })
    }

    /// The connection that was used last, and those that were not used for long go back to the pool.
    fn pop(&self) -> Option<Kept<DB>> {
        let mut idle = self.idle.lock();
        idle.retain(|kept| kept.used.elapsed() < MAX_IDLE && kept.since.elapsed() < MAX_AGE);
        idle.pop()
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

impl<DB: Database> Line<DB> {
    /// Whether it has just come from the pool, so that nothing is known about its session.
    #[cfg(feature = "mysql")]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Keeps the connection for the next statement.
    pub fn keep(mut self) {
        let Some(mut kept) = self.kept.take() else { return };
        kept.used = Instant::now();
        let mut idle = self.lines.idle.lock();
        if idle.len() < self.lines.kept && kept.since.elapsed() < MAX_AGE && !self.lines.pool.is_closed() {
            idle.push(kept);
        }
    }
}

impl<DB: Database> Deref for Line<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.kept.as_ref().expect("a line has its connection until it is kept or dropped").connection
    }
}

impl<DB: Database> DerefMut for Line<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.kept.as_mut().expect("a line has its connection until it is kept or dropped").connection
    }
}

impl<DB: Database> Drop for Line<DB> {
    fn drop(&mut self) {
        // Detached from the pool it is simply closed; returned, the pool would wait for an answer that may never come.
        if let Some(kept) = self.kept.take() {
            drop(kept.connection.detach());
        }
    }
}
