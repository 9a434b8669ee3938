//! Running the relay's statements.

use std::time::Duration;

use postrider_core::store::StoreError;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments, AssertSqlSafe, Connection, PgConnection, PgPool, Postgres, Row};
use uuid::Uuid;

use super::error::{for_relay, is_conflict, is_from_healthy_server, sqlstate};
use crate::lines::Lines;
use crate::sql::Sql;

/// How often a statement is tried when the database chose it as the victim of a deadlock.
const TRIES: u64 = 5;

/// Runs statements. Deadlocks and serialisation failures are tried again here: the database rolled the statement
/// back, so trying again cannot do it twice.
#[derive(Debug, Clone)]
pub(super) struct Runner {
    pub pool: PgPool,
    /// A pooler in transaction mode may give each statement to another server, even between its preparation and
    /// its execution. An explicit transaction keeps them together.
    pub behind_pooler: bool,
    lines: Lines<Postgres>,
}

impl Runner {
    pub fn new(pool: PgPool) -> Self {
        Self { lines: Lines::new(pool.clone()), pool, behind_pooler: false }
    }

    /// Runs a statement; `arguments` makes its parameters anew for each try.
    pub async fn fetch<A>(&self, verb: &'static str, sql: &Sql, arguments: A) -> Result<Vec<PgRow>, StoreError>
    where
        A: Fn() -> Result<PgArguments, sqlx::Error> + Send + Sync,
    {
        self.fetch_followed(verb, sql, arguments, None).await
    }

    /// Runs a statement that answers ids, and in the same transaction one that gives the rows with these ids up.
    pub async fn fetch_and_entomb<A>(
        &self,
        verb: &'static str,
        sql: &Sql,
        arguments: A,
        entomb: &Sql,
    ) -> Result<Vec<PgRow>, StoreError>
    where
        A: Fn() -> Result<PgArguments, sqlx::Error> + Send + Sync,
    {
        self.fetch_followed(verb, sql, arguments, Some(entomb)).await
    }

    async fn fetch_followed<A>(
        &self,
        verb: &'static str,
        sql: &Sql,
        arguments: A,
        then: Option<&Sql>,
    ) -> Result<Vec<PgRow>, StoreError>
    where
        A: Fn() -> Result<PgArguments, sqlx::Error> + Send + Sync,
    {
        let mut tried = 0;
        loop {
            tried += 1;
            let arguments = arguments().map_err(|error| for_relay(verb, error))?;
            match self.try_fetch(sql, arguments, then).await {
                Ok(rows) => return Ok(rows),
                Err(error) if tried < TRIES && sqlstate(&error).is_some_and(|state| is_conflict(&state)) => {
                    tokio::time::sleep(Duration::from_millis(tried * 5)).await;
                }
                Err(error) => return Err(for_relay(verb, error)),
            }
        }
    }

    /// Rings, with a word after the table's name.
    pub async fn ring(&self, sql: &Sql, word: &str) -> Result<(), StoreError> {
        let arguments = || {
            let mut arguments = PgArguments::default();
            arguments.add(word.to_owned()).map_err(sqlx::Error::Encode)?;
            Ok(arguments)
        };
        self.fetch("ring", sql, arguments).await.map(drop)
    }

    async fn try_fetch(
        &self,
        sql: &Sql,
        arguments: PgArguments,
        then: Option<&Sql>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut line = self.lines.take().await?;
        let answer = match self.behind_pooler || then.is_some() {
            true => fetch_in_transaction(&mut line, sql, arguments, then).await,
            false => sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).fetch_all(&mut *line).await,
        };
        if answer.as_ref().err().is_none_or(is_from_healthy_server) {
            line.keep();
        }
        answer
    }
}

async fn fetch_in_transaction(
    connection: &mut PgConnection,
    sql: &Sql,
    arguments: PgArguments,
    then: Option<&Sql>,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let query = sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).persistent(false);
    let rows = match (query.fetch_all(&mut *transaction).await, then) {
        (Ok(rows), Some(then)) => entomb(&mut transaction, then, &rows).await.map(|()| rows),
        (rows, _) => rows,
    };
    match rows {
        Ok(rows) => transaction.commit().await.map(|()| rows),
        // Awaited, so that no connection waits for its next use in an aborted transaction.
        Err(error) => transaction.rollback().await.and(Err(error)),
    }
}

async fn entomb(connection: &mut PgConnection, sql: &Sql, rows: &[PgRow]) -> Result<(), sqlx::Error> {
    let ids = rows.iter().map(|row| row.try_get::<Option<Uuid>, _>(0)).filter_map(Result::transpose);
    let ids: Vec<Uuid> = ids.collect::<Result<_, _>>()?;
    sqlx::query(AssertSqlSafe(sql.clone())).persistent(false).bind(ids).execute(connection).await?;
    Ok(())
}
