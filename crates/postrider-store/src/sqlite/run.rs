//! Running the relay's statements.
//!
//! SQLite has one writer at a time. A relay's transaction takes the write lock at once (`begin immediate`) and is two
//! trips long: begin, then the verb with its commit. While somebody else has the lock SQLite waits for as long as the
//! connection's busy time-out says, and here it is tried again beyond that. Nothing else is tried again: after the lock
//! is ours, no error comes from others.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::store::StoreError;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Row, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use uuid::Uuid;

use super::clock::{Mark, not_after, warn};
use super::error::{code, for_relay, is_conflict};
use super::settings;
use super::statements::{Step, StoreStatements};
use super::types::Bound;
use crate::clock::Clock;
use crate::lines::{Line, Lines};
use crate::names::Names;
use crate::sql::Sql;

/// For how long the write lock is waited for in all.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest pause before it is tried again.
const LONGEST_PAUSE_MICROS: u64 = 20_000;

#[derive(Clone)]
pub(super) struct Runner {
    pub pool: SqlitePool,
    pub statements: Arc<StoreStatements>,
    pub clock: Arc<dyn Clock>,
    pub relaxed: bool,
    names: Names,
    lines: Lines<Sqlite>,
    ready: Arc<OnceCell<()>>,
}

impl Runner {
    pub fn new(pool: SqlitePool, names: Names, clock: Arc<dyn Clock>) -> Self {
        Self {
            statements: StoreStatements::render(&names).into(),
            lines: Lines::new(pool.clone()),
            pool,
            clock,
            relaxed: false,
            names,
            ready: Arc::default(),
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
        self.begin_unchecked().await.map_err(|error| for_relay(verb, error))
    }

    /// Checks that promises can be kept on this database.
    pub async fn check_settings(&self) -> Result<(), StoreError> {
        let mut line = self.lines.take().await.map_err(|error| for_relay("open the store", error))?;
        settings::check(&mut line, &self.names, self.relaxed).await?;
        line.keep();
        Ok(())
    }

    /// Checks the settings, and the rows for times in the future, when the store is first used.
    async fn make_ready(&self) -> Result<(), StoreError> {
        let check = || async {
            let failed = |error| for_relay("open the store", error);
            self.check_settings().await?;
            let bind = |bound: &mut Bound, now: i64| {
                bound.add(not_after(now));
            };
            let rows = self.read_unchecked(&self.statements.clock_ahead, bind).await.map_err(failed)?;
            let ahead = rows.first().map(|row| row.try_get::<bool, _>(0)).transpose().map_err(failed)?;
            match ahead {
                Some(true) => self.repair_fresh_rows().await.map_err(failed),
                _ => Ok(()),
            }
        };
        self.ready.get_or_try_init(check).await.map(|_| ())
    }

    /// Makes rows due that were due when they were written but lie in the future by now.
    pub async fn repair_fresh_rows(&self) -> Result<(), sqlx::Error> {
        let mut writing = self.begin_unchecked().await?;
        writing.repair(&self.statements, 0).await?;
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

    async fn begin_unchecked(&self) -> Result<Writing, sqlx::Error> {
        let begun = Instant::now();
        loop {
            let mut line = self.lines.take().await?;
            match fetch(&mut line, &self.statements.begin, SqliteArguments::default()).await {
                Ok(rows) => return self.with_the_lock(line, &rows).await,
                Err(error) if is_busy(&error) && begun.elapsed() < PATIENCE => {
                    line.keep();
                    pause().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn with_the_lock(&self, line: Line<Sqlite>, rows: &[SqliteRow]) -> Result<Writing, sqlx::Error> {
        let now = self.clock.now_micros();
        let seen = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
        let mut writing = Writing { line, now };
        match Mark::compare(seen, now) {
            Mark::Recent => {}
            Mark::Advance => {
                let arguments = Bound::default().add(now).finish()?;
                fetch(&mut writing.line, &self.statements.clock_advance, arguments).await?;
            }
            Mark::Repair(behind) => {
                warn(behind);
                writing.repair(&self.statements, behind).await?;
            }
        }
        Ok(writing)
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("names", &self.names).finish_non_exhaustive()
    }
}

/// A transaction that holds the write lock. Dropped half way it is rolled back with its connection.
pub(super) struct Writing {
    line: Line<Sqlite>,
    /// What time it is for everything in this transaction.
    pub now: i64,
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

    async fn repair(&mut self, statements: &StoreStatements, behind: i64) -> Result<(), sqlx::Error> {
        let arguments = Bound::default().add(self.now).add(behind).finish()?;
        fetch(&mut self.line, &statements.clock_repair, arguments).await.map(drop)
    }
}

async fn fetch(
    connection: &mut SqliteConnection,
    sql: &Sql,
    arguments: SqliteArguments,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).fetch_all(connection).await
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
