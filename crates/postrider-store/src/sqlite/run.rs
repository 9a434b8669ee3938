//! Running the relay's statements.
//!
//! SQLite has one writer at a time. A relay's transaction takes the write lock at once (`begin immediate`) and is two
//! trips long: begin, then the verb with its commit. A store's transactions take turns. While somebody else has the lock
//! SQLite waits for as long as the connection's busy time-out says, and here it is tried again beyond that. Nothing else is tried again: after the lock
//! is ours, no error comes from others.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::store::StoreError;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Row, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard, oneshot};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::clock::{Mark, Pace, not_after, warn};
use super::error::{code, for_relay, is_conflict, lock_is_held};
use super::flight::Flight;
use super::settings;
use super::statements::{Step, StoreStatements};
use super::types::Bound;
use crate::clock::Clock;
use crate::layout::Layout;
use crate::lines::{Line, Lines};
use crate::sql::Sql;

/// For how long the write lock is waited for in all: less than the ten seconds that a dispatcher waits for a verb, so
/// that its operator reads what was waited for.
const PATIENCE: Duration = Duration::from_secs(8);
/// The longest pause before it is tried again.
const LONGEST_PAUSE_MICROS: u64 = 20_000;

/// What errors of repairs say was tried.
const REPAIR: &str = "look for rows in the future";
/// How long a sweep waits until the time is noted.
const NOTE_WITHIN: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(super) struct Runner {
    pub pool: SqlitePool,
    pub statements: Arc<StoreStatements>,
    pub clock: Arc<dyn Clock>,
    pub relaxed: bool,
    pub layout: Arc<Layout>,
    lines: Lines<Sqlite>,
    ready: Arc<OnceCell<()>>,
    pace: Arc<Pace>,
    repairing: Arc<Flight>,
    scanning: Arc<Flight>,
    noting: Arc<Flight>,
    turn: Arc<Mutex<()>>,
}

impl Runner {
    pub fn new(pool: SqlitePool, layout: Arc<Layout>, clock: Arc<dyn Clock>) -> Self {
        Self {
            statements: StoreStatements::render(&layout).into(),
            lines: Lines::new(pool.clone()),
            pool,
            clock,
            relaxed: false,
            layout,
            ready: Arc::default(),
            pace: Arc::default(),
            repairing: Arc::default(),
            scanning: Arc::default(),
            noting: Arc::default(),
            turn: Arc::default(),
        }
    }

    /// Reads; `arguments` is given the time.
    pub async fn read<A>(&self, verb: &'static str, sql: &Sql, arguments: A) -> Result<Vec<SqliteRow>, StoreError>
    where
        A: Fn(&mut Bound, i64) + Send + Sync,
    {
        self.make_ready().await?;
        self.read_unchecked(sql, arguments).await.map_err(|error| for_relay(verb, error))
    }

    /// Begins a transaction that writes. Its time is taken with the lock in hand, so it is later than that of every
    /// transaction before it, unless the clock was set back.
    pub async fn begin(&self, verb: &'static str) -> Result<Writing, StoreError> {
        self.make_ready().await?;
        let failed = |error| for_relay(verb, error);
        loop {
            let (mut writing, seen) = self.lock(verb).await?;
            match Mark::compare(seen, writing.now) {
                Mark::Recent => return Ok(writing),
                Mark::Advance => {
                    let now = writing.now;
                    writing.clock(&self.statements.clock_advance, &[now]).await.map_err(failed)?;
                    return Ok(writing);
                }
                Mark::Repair(_) => {
                    writing.commit().await.map_err(failed)?;
                    self.repair().await?;
                }
            }
        }
    }

    /// Checks that promises can be kept on this database.
    pub async fn check_settings(&self) -> Result<(), StoreError> {
        let mut line = self.lines.take().await.map_err(|error| for_relay("open the store", error))?;
        settings::check(&mut line, &self.layout.names, self.relaxed).await?;
        line.keep();
        Ok(())
    }

    /// Checks the settings, and the rows for times in the future, when the store is first used.
    async fn make_ready(&self) -> Result<(), StoreError> {
        let check = || async {
            self.check_settings().await?;
            self.repair_fresh_rows().await
        };
        self.ready.get_or_try_init(check).await.map(|_| ())
    }

    /// Looks for rows in the future if the clock went back since this was last called.
    pub async fn heed_clock(&self) -> Result<(), StoreError> {
        if let Some(jump) = self.pace.jump(&*self.clock) {
            self.repair_fresh_rows().await?;
            self.pace.heeded(jump);
        }
        Ok(())
    }

    /// Moves leases and waiting rows back if the clock was set back. With many rows that takes longer than a dispatcher
    /// waits for a verb, so it goes on when the caller gives up, and the next caller waits for the same repair.
    pub async fn repair(&self) -> Result<(), StoreError> {
        let runner = self.clone();
        let repair = async move {
            let (writing, seen) = runner.lock(REPAIR).await?;
            runner.move_back(writing, seen, false).await.map_err(|error| for_relay(REPAIR, error))
        };
        self.repairing.join(repair).await
    }

    /// Makes rows due that were due when they were written but lie in the future by now, if there are any. Goes on when
    /// the caller gives up, like [`repair`](Self::repair).
    pub async fn repair_fresh_rows(&self) -> Result<(), StoreError> {
        let runner = self.clone();
        let repair = async move {
            let bind = |bound: &mut Bound, now: i64| {
                bound.add(not_after(now));
            };
            let failed = |error| for_relay(REPAIR, error);
            let rows = runner.read_unchecked(&runner.statements.clock_ahead, bind).await.map_err(failed)?;
            let any = rows.first().map(|row| row.try_get::<bool, _>(0)).transpose().map_err(failed)?;
            if any != Some(true) {
                return Ok(());
            }
            let (writing, seen) = runner.lock(REPAIR).await?;
            runner.move_back(writing, seen, true).await.map_err(failed)
        };
        self.scanning.join(repair).await
    }

    /// Notes the time although there is nothing to write. An idle relay does not wait long for a writer: if the lock is
    /// not free it is noted later, and if that fails the next sweep tries again.
    pub async fn note_time(&self) {
        let runner = self.clone();
        let note = async move {
            let writing = runner.begin("note the time").await?;
            writing.commit().await.map_err(|error| for_relay("note the time", error))
        };
        let _later = tokio::time::timeout(NOTE_WITHIN, self.noting.join(note)).await;
    }

    /// Does what the comparison says with the lock in hand, because somebody else may have done it meanwhile.
    async fn move_back(&self, mut writing: Writing, seen: i64, fresh: bool) -> Result<(), sqlx::Error> {
        let (statements, now) = (&self.statements, writing.now);
        if let Mark::Repair(behind) = Mark::compare(seen, now) {
            warn(behind);
            writing.clock(&statements.clock_leases, &[now, behind]).await?;
            writing.clock(&statements.clock_waits, &[now, behind]).await?;
            writing.clock(&statements.clock_fresh, &[now]).await?;
            writing.clock(&statements.clock_advance, &[now]).await?;
        } else if fresh {
            writing.clock(&statements.clock_fresh, &[now]).await?;
        }
        writing.commit().await
    }

    async fn read_unchecked<A>(&self, sql: &Sql, arguments: A) -> Result<Vec<SqliteRow>, sqlx::Error>
    where
        A: Fn(&mut Bound, i64) + Send + Sync,
    {
        let begun = Instant::now();
        loop {
            let mut line = self.lines.take().await?;
            let mut bound = Bound::default();
            arguments(&mut bound, self.clock.now_micros());
            let answer = fetch(&mut line, sql, bound.finish()?).await;
            if answer.as_ref().err().is_none_or(is_answer) {
                line.keep();
            }
            match answer {
                Err(error) if is_busy(&error) && begun.elapsed() < PATIENCE => pause().await,
                answer => return answer,
            }
        }
    }

    /// Takes the write lock; answers also what time the last transaction saw.
    ///
    /// Who waits for the lock occupies a thread of SQLite's that cannot be called off, and a caller may give up at any
    /// time. So of one store only one waits for it at a time, in a task of its own; the others wait for their turn.
    async fn lock(&self, verb: &'static str) -> Result<(Writing, i64), StoreError> {
        let until = Instant::now() + PATIENCE;
        let turn = timeout_at(until, self.turn.clone().lock_owned()).await.map_err(|_| lock_is_held(verb))?;
        let line = timeout_at(until, self.lines.take()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        let line = line.map_err(|error| for_relay(verb, error))?;
        let (sender, receiver) = oneshot::channel();
        let runner = self.clone();
        tokio::spawn(async move {
            // Sent to nobody it is dropped, and with it the transaction is rolled back and the turn is over.
            let _given_up = sender.send(runner.lock_in_turn(turn, line, until).await);
        });
        match timeout_at(until, receiver).await {
            Ok(Ok(answer)) => answer.map_err(|error| for_relay(verb, error)),
            Ok(Err(_)) => Err(for_relay(verb, sqlx::Error::WorkerCrashed)),
            Err(_) => Err(lock_is_held(verb)),
        }
    }

    async fn lock_in_turn(
        &self,
        turn: OwnedMutexGuard<()>,
        mut line: Line<Sqlite>,
        until: Instant,
    ) -> Result<(Writing, i64), sqlx::Error> {
        loop {
            match fetch(&mut line, &self.statements.begin, SqliteArguments::default()).await {
                Ok(rows) => {
                    let seen = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
                    return Ok((Writing { line, now: self.clock.now_micros(), _turn: turn }, seen));
                }
                Err(error) if is_busy(&error) && Instant::now() < until => pause().await,
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("names", &self.layout.names).finish_non_exhaustive()
    }
}

/// A transaction that holds the write lock. Dropped half way it is rolled back with its connection.
pub(super) struct Writing {
    line: Line<Sqlite>,
    /// What time it is for everything in this transaction.
    pub now: i64,
    /// Others of this store may write when it is dropped.
    _turn: OwnedMutexGuard<()>,
}

impl Writing {
    /// Runs a statement; more will follow.
    pub async fn run(&mut self, step: &Step, bound: &mut Bound) -> Result<Vec<SqliteRow>, sqlx::Error> {
        fetch(&mut self.line, &step.open, bound.finish()?).await
    }

    /// Runs the last statement and commits.
    pub async fn finish(mut self, step: &Step, bound: &mut Bound) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let rows = fetch(&mut self.line, &step.last, bound.finish()?).await?;
        self.line.keep();
        Ok(rows)
    }

    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::query("commit").execute(&mut *self.line).await?;
        self.line.keep();
        Ok(())
    }

    async fn clock(&mut self, sql: &Sql, times: &[i64]) -> Result<(), sqlx::Error> {
        let mut bound = Bound::default();
        for time in times {
            bound.add(*time);
        }
        fetch(&mut self.line, sql, bound.finish()?).await.map(drop)
    }
}

async fn fetch(
    connection: &mut SqliteConnection,
    sql: &Sql,
    arguments: SqliteArguments,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).fetch_all(connection).await
}

/// Does something as soon as nobody else holds the file.
pub(super) async fn when_free<T, F>(attempt: impl Fn() -> F) -> Result<T, sqlx::Error>
where
    F: Future<Output = Result<T, sqlx::Error>>,
{
    let begun = Instant::now();
    loop {
        match attempt().await {
            Err(error) if is_busy(&error) && begun.elapsed() < PATIENCE => pause().await,
            answer => return answer,
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    code(error).is_some_and(is_conflict)
}

/// Whether SQLite itself answered, so that the connection is as good as before.
fn is_answer(error: &sqlx::Error) -> bool {
    code(error).is_some()
}

/// Of random length, so that those who wait for the lock do not all come back at once.
async fn pause() {
    let [.., low, high] = Uuid::new_v4().into_bytes();
    let micros = 1_000 + u64::from(u16::from_le_bytes([low, high])) % LONGEST_PAUSE_MICROS;
    tokio::time::sleep(Duration::from_micros(micros)).await;
}
