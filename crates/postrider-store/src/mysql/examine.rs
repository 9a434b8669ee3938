//! Looking for what is set up wrong. Reads the catalog and the server's variables, and changes nothing.

mod account;
mod server;
mod table;

use postrider_core::operate::{Finding, Severity};
use postrider_core::store::StoreError;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::error::{for_relay, number};
use super::{MySqlStore, check, migrate};
use crate::examine::{Reading, Thresholds, clock_skew, consumers, consumers_unseen, from_error, now_micros, schema};

/// How often the clock is looked at.
const LOOKS: usize = 3;

impl MySqlStore {
    /// Looks for what is set up wrong, and says how to mend it. Changes nothing.
    pub async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.examine_within(&Thresholds::default()).await
    }

    /// [`examine`](Self::examine) with other thresholds.
    pub async fn examine_within(&self, thresholds: &Thresholds) -> Result<Vec<Finding>, StoreError> {
        let failed = |error| for_relay("examine", error);
        let mut connection = self.runner.pool.acquire().await.map_err(failed)?;
        let connection = &mut *connection;
        let mut findings = vec![match check::session(connection).await {
            Ok(()) => Finding::fine("session", "the server is new enough and the session strict and in utf8mb4"),
            Err(error) => from_error("session", &error),
        }];
        findings.extend(server::look(connection, thresholds).await.map_err(failed)?);
        findings.push(clock(connection, thresholds).await.map_err(failed)?);
        findings.extend(transactions(connection, thresholds).await.map_err(failed)?);
        let (version, is_there) = schema(self.pending().await, migrate::LATEST)?;
        // Only then are all tables there.
        let is_latest = version.severity == Severity::Fine;
        findings.push(version);
        if is_there {
            findings.push(match check::engine(connection, &self.names).await {
                Ok(()) => Finding::fine("engine", "the table is InnoDB"),
                Err(error) => from_error("engine", &error),
            });
        }
        // The columns and indexes of other tables are their owners', and their outboxes have no changelog.
        let ours = self.layout().is_ours();
        if is_there && ours {
            findings.extend(table::look(connection, self).await.map_err(failed)?);
            findings.extend(account::look(connection, self).await.map_err(failed)?);
        }
        if !ours {
            findings.extend(self.check_layout().await?);
        }
        if is_latest && ours {
            findings.extend(self.consumers(connection).await.map_err(failed)?);
        }
        Ok(findings)
    }

    async fn consumers(&self, connection: &mut MySqlConnection) -> Result<Vec<Finding>, sqlx::Error> {
        let sql = self.text(include_str!("../../sql/mysql/examine_consumers.sql"));
        let rows = match sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await {
            Err(error) if account::is_denied(&error) => return Ok(vec![consumers_unseen(&self.text("{cursors}"))]),
            answer => answer?,
        };
        let read = |row: &sqlx::mysql::MySqlRow| Ok((row.try_get("name")?, row.try_get("since")?));
        let held_back = rows.iter().map(read).collect::<Result<Vec<_>, sqlx::Error>>()?;
        Ok(consumers(&held_back, &self.text("{cursors}")))
    }

    /// A template with the outbox's names, its header left out.
    fn text(&self, template: &str) -> String {
        super::statements::render(&self.names, template, &[])
    }
}

async fn clock(connection: &mut MySqlConnection, thresholds: &Thresholds) -> Result<Finding, sqlx::Error> {
    let sql = "select cast(timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', utc_timestamp(6)) as signed)";
    let mut readings = Vec::new();
    for _ in 0..LOOKS {
        let before = now_micros();
        let theirs = sqlx::query_scalar(sql).persistent(false).fetch_one(&mut *connection).await?;
        readings.push(Reading { before, theirs, after: now_micros() });
    }
    Ok(clock_skew(&readings, thresholds.clock_skew))
}

/// The account may not see the transactions of others.
const NOT_ALLOWED: [u16; 2] = [1227, 1142];

async fn transactions(connection: &mut MySqlConnection, thresholds: &Thresholds) -> Result<Vec<Finding>, sqlx::Error> {
    const NAME: &str = "long-transaction";
    let sql = crate::sql::fill(include_str!("../../sql/mysql/examine_transactions.sql"), []);
    let seconds = i64::try_from(thresholds.transaction.as_secs()).unwrap_or(i64::MAX);
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(false).bind(seconds);
    let rows = match query.fetch_all(connection).await {
        Err(error) if number(&error).is_some_and(|number| NOT_ALLOWED.contains(&number)) => {
            let why = "the transactions of other accounts are seen with the privilege PROCESS only";
            return Ok(vec![Finding::not_examined(NAME, why)]);
        }
        answer => answer?,
    };
    if rows.is_empty() {
        let what = format!("no transaction is open for longer than {:?}", thresholds.transaction);
        return Ok(vec![Finding::fine(NAME, what)]);
    }
    let finding = |row: &sqlx::mysql::MySqlRow| {
        let (thread, state): (i64, String) = (row.try_get("thread")?, row.try_get("state")?);
        let (seconds, locks): (i64, i64) = (row.try_get("seconds")?, row.try_get("row_locks")?);
        Ok(Finding::warning(
            NAME,
            format!(
                "thread {thread} ({state}) has a transaction open since {seconds} s and {locks} rows locked; no row version that died since is cleaned away, and claims walk over them"
            ),
            format!("look for the program that leaves transactions open; to end it now, run: kill {thread}"),
        ))
    };
    rows.iter().map(finding).collect()
}
