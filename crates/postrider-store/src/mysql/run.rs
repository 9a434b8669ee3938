//! Running the relay's work: what a verb does on one connection, as a whole, again if the database rolled it back.

use std::time::Duration;

use postrider_core::store::StoreError;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, MySqlPool};

use super::check;
use super::error::{for_relay, is_conflict, is_from_healthy_server, number};
use super::types::Bound;
use crate::lines::Lines;
use crate::sql::Sql;

/// Puts back what [`BEGIN`] changed, if it did.
macro_rules! restore {
    () => {
        "set session innodb_lock_wait_timeout = cast(coalesce(@postrider_lock_wait, @@session.innodb_lock_wait_timeout) as unsigned), \
        session wait_timeout = cast(coalesce(@postrider_idle, @@session.wait_timeout) as unsigned), \
        @postrider_lock_wait = null, @postrider_idle = null"
    };
}

/// How often work is tried when the database chose it as the victim of a deadlock, or it waited too long for a lock.
const TRIES: u64 = 5;

/// A transaction of the relay waits for a lock for a second at most: whoever gave up on it cannot end it, and it has rows
/// locked meanwhile. And the server ends it after 30 seconds without a statement, so that a relay that is frozen hides no
/// rows for hours. Both are the session's, which may go back to the pool, so they are put back with the transaction's
/// end. The isolation level is for the next transaction only. At READ COMMITTED no lock covers a gap, where a producer
/// wants to insert.
const BEGIN: &str = "set @postrider_lock_wait = @@session.innodb_lock_wait_timeout, \
    @postrider_idle = @@session.wait_timeout; \
    set session innodb_lock_wait_timeout = 1, session wait_timeout = least(@@session.wait_timeout, 30); \
    set transaction isolation level read committed; start transaction";

const COMMIT: &str = concat!("commit; ", restore!());

/// Also where no transaction was begun.
const ROLL_BACK: &str = concat!("rollback; ", restore!());

/// What a verb does on one connection.
pub(super) trait Work: Sync {
    type Answer: Send;

    /// Does all of it. Begins and commits for itself; when it fails, the runner rolls back.
    fn run(&self, connection: &mut MySqlConnection) -> impl Future<Output = Result<Self::Answer, sqlx::Error>> + Send;
}

/// Runs work. Deadlocks and lock time-outs are tried again here: what the work did before is rolled back, so trying
/// again cannot do it twice.
#[derive(Debug, Clone)]
pub(super) struct Runner {
    pub pool: MySqlPool,
    lines: Lines<MySql>,
}

impl Runner {
    pub fn new(pool: MySqlPool) -> Self {
        Self { lines: Lines::new(pool.clone()), pool }
    }

    pub async fn run<W: Work>(&self, verb: &'static str, work: &W) -> Result<W::Answer, StoreError> {
        let mut tried = 0;
        loop {
            tried += 1;
            match self.try_run(verb, work).await? {
                Ok(answer) => return Ok(answer),
                Err(error) if tried < TRIES && number(&error).is_some_and(is_conflict) => {
                    tokio::time::sleep(Duration::from_millis(tried * 5)).await;
                }
                Err(error) => return Err(for_relay(verb, error)),
            }
        }
    }

    /// The outer error is for good. A line that is dropped here on the way is torn down, and the server rolls back.
    async fn try_run<W: Work>(
        &self,
        verb: &'static str,
        work: &W,
    ) -> Result<Result<W::Answer, sqlx::Error>, StoreError> {
        let failed = |error| for_relay(verb, error);
        let mut line = self.lines.take().await.map_err(failed)?;
        if line.is_new() {
            check::session(&mut line).await?;
        }
        let answer = work.run(&mut line).await;
        match &answer {
            Ok(_) => line.keep(),
            // A lock time-out undoes the statement only.
            Err(error) if is_from_healthy_server(error) => {
                if roll_back(&mut line).await.is_ok() {
                    line.keep();
                }
            }
            Err(_) => {}
        }
        Ok(answer)
    }
}

/// Begins a transaction in one round trip; ends with [`commit`] or [`roll_back`], or with the connection.
pub(super) async fn begin(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    execute_text(connection, BEGIN).await
}

pub(super) async fn commit(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    execute_text(connection, COMMIT).await
}

pub(super) async fn roll_back(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    execute_text(connection, ROLL_BACK).await
}

async fn execute_text(connection: &mut MySqlConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(sql).execute(connection).await.map(drop)
}

/// Runs a statement that answers rows.
pub(super) async fn fetch(
    connection: &mut MySqlConnection,
    sql: &Sql,
    bound: Bound,
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    sqlx::query_with(AssertSqlSafe(sql.clone()), bound.finish()?).fetch_all(connection).await
}

/// Runs a statement that changes rows; answers how many it found.
pub(super) async fn execute(connection: &mut MySqlConnection, sql: &Sql, bound: Bound) -> Result<u64, sqlx::Error> {
    let done = sqlx::query_with(AssertSqlSafe(sql.clone()), bound.finish()?).execute(connection).await?;
    Ok(done.rows_affected())
}
