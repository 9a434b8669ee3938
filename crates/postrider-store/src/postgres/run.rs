//! Running the relay's statements.

use std::time::Duration;

use postrider_core::store::StoreError;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, PgPool};

use super::error::{for_relay, is_conflict, sqlstate};
use super::statements::Sql;

/// How often a statement is tried when the database chose it as the victim of a deadlock.
const TRIES: u64 = 5;

/// Runs statements on a pool. Deadlocks and serialisation failures are tried again here: the database rolled
/// the statement back, so trying again cannot do it twice.
#[derive(Debug, Clone)]
pub(super) struct Runner {
    pub pool: PgPool,
    /// A pooler in transaction mode may give each statement to another server, even between its preparation and
    /// its execution. An explicit transaction keeps them together.
    pub behind_pooler: bool,
}

impl Runner {
    pub fn new(pool: PgPool) -> Self {
        Self { pool, behind_pooler: false }
    }

    /// Runs a statement; `arguments` makes its parameters anew for each try.
    pub async fn fetch<A>(&self, verb: &'static str, sql: &Sql, arguments: A) -> Result<Vec<PgRow>, StoreError>
    where
        A: Fn() -> Result<PgArguments, sqlx::Error> + Send + Sync,
    {
        let mut tried = 0;
        loop {
            tried += 1;
            let arguments = arguments().map_err(|error| for_relay(verb, error))?;
            match self.try_fetch(sql, arguments).await {
                Ok(rows) => return Ok(rows),
                Err(error) if tried < TRIES && sqlstate(&error).is_some_and(|state| is_conflict(&state)) => {
                    tokio::time::sleep(Duration::from_millis(tried * 5)).await;
                }
                Err(error) => return Err(for_relay(verb, error)),
            }
        }
    }

    async fn try_fetch(&self, sql: &Sql, arguments: PgArguments) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sqlx::query_with(AssertSqlSafe(sql.clone()), arguments);
        if !self.behind_pooler {
            return query.fetch_all(&self.pool).await;
        }
        let mut transaction = self.pool.begin().await?;
        let rows = query.persistent(false).fetch_all(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(rows)
    }
}
