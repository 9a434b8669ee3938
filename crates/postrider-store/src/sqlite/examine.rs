//! Looking for what is set up wrong. Reads the file's settings and schema, and changes nothing: a table is made once to see
//! whether the file can be written, and never committed.

mod file;
mod schema;

use postrider_core::operate::{Finding, Severity};
use postrider_core::store::StoreError;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use super::error::{code, for_relay, is_conflict};
use super::{SqliteStore, migrate, settings};
use crate::examine::{Thresholds, consumers, from_error, now_micros};
use crate::names::Names;

/// The shortest wait for the write lock that rides out a neighbour's transaction, in milliseconds.
const SHORTEST_WAIT: i64 = 1_000;
/// The page size that SQLite has made files with since 2016.
const USUAL_PAGE: i64 = 4_096;

impl SqliteStore {
    /// Looks for what is set up wrong, and says how to mend it. Changes nothing.
    pub async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.examine_within(&Thresholds::default()).await
    }

    /// [`examine`](Self::examine) with other thresholds.
    pub async fn examine_within(&self, thresholds: &Thresholds) -> Result<Vec<Finding>, StoreError> {
        let failed = |error| for_relay("examine", error);
        settings::names_are_plain(&self.names)?;
        let mut connection = self.runner.pool.acquire().await.map_err(failed)?;
        let connection = &mut *connection;
        let mut findings = self.settings(connection).await.map_err(failed)?;
        findings.push(writable(connection, &self.names).await.map_err(failed)?);
        let path = self.runner.pool.connect_options().get_filename().to_owned();
        findings.extend(file::look(&path, thresholds));
        let (version, is_there) = crate::examine::schema(self.pending().await, migrate::LATEST)?;
        // Only then are all tables there.
        let is_latest = version.severity == Severity::Fine;
        findings.push(version);
        // The indexes of other tables are their owners', and their outboxes have no changelog.
        let ours = self.layout().is_ours();
        if is_there && ours {
            findings.extend(schema::look(connection, self).await.map_err(failed)?);
        }
        if is_there {
            findings.push(self.clock(connection, thresholds).await.map_err(failed)?);
            findings.push(self.damage(connection, thresholds).await.map_err(failed)?);
        }
        if !ours {
            findings.extend(self.check_layout().await?);
        }
        if is_latest && ours {
            findings.extend(self.consumers(connection).await.map_err(failed)?);
        }
        Ok(findings)
    }

    async fn settings(&self, connection: &mut SqliteConnection) -> Result<Vec<Finding>, sqlx::Error> {
        let settings = settings::read(connection).await?;
        let mut findings = vec![match settings.check(self.runner.relaxed) {
            Err(error) => from_error("settings", &error),
            Ok(()) => Finding::fine(
                "settings",
                format!(
                    "SQLite {}, journal mode {}, synchronous {}",
                    settings.version, settings.journal_mode, settings.synchronous
                ),
            ),
        }];
        let wait = number(connection, "pragma busy_timeout").await?;
        findings.push(match wait < SHORTEST_WAIT {
            true => Finding::warning(
                "busy-timeout",
                format!("a connection waits {wait} ms for the write lock, so a neighbour's transaction is answered with an error"),
                "open the file with a busy time-out of 5 seconds",
            ),
            false => Finding::fine("busy-timeout", format!("a connection waits {wait} ms for the write lock")),
        });
        let page = number(connection, "pragma page_size").await?;
        findings.push(match page < USUAL_PAGE {
            true => Finding::warning(
                "page-size",
                format!("the file's pages have {page} bytes, so a message takes many of them"),
                "stop all programs that use the file, then run: pragma journal_mode = delete; pragma page_size = 4096; vacuum; pragma journal_mode = wal",
            ),
            false => Finding::fine("page-size", format!("the file's pages have {page} bytes")),
        });
        Ok(findings)
    }

    /// Relays note the latest time that they have seen.
    async fn clock(&self, connection: &mut SqliteConnection, thresholds: &Thresholds) -> Result<Finding, sqlx::Error> {
        const NAME: &str = "clock-set-back";
        let sql = self.text("select coalesce(max(seen), 0) from {clock}");
        let seen: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?;
        let ahead = seen - now_micros();
        Ok(match ahead > crate::clock::micros(thresholds.clock_skew) {
            true => Finding::warning(
                NAME,
                format!(
                    "a relay has seen a time that is {} s ahead of this host's clock: the clock was set back, or the file comes from elsewhere",
                    ahead / 1_000_000
                ),
                "synchronise the clock with NTP; a running relay moves its rows' times back by itself",
            ),
            false => Finding::fine(NAME, "no relay has seen a later time than this host's clock shows"),
        })
    }

    async fn damage(&self, connection: &mut SqliteConnection, thresholds: &Thresholds) -> Result<Finding, sqlx::Error> {
        const NAME: &str = "damage";
        let bytes = number(connection, "pragma page_count").await? * number(connection, "pragma page_size").await?;
        if bytes > thresholds.checked_bytes {
            let why = format!("the file has {bytes} bytes, too many to look through now; pragma quick_check does it");
            return Ok(Finding::not_examined(NAME, why));
        }
        let sql = format!("pragma quick_check(\"{}\")", self.names.table());
        let answer: String = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?;
        // The answer may quote a value, so it is not shown.
        Ok(match answer == "ok" {
            true => Finding::fine(NAME, "the table was looked through and is sound"),
            false => Finding::problem(
                NAME,
                "the table is damaged",
                "run pragma integrity_check to see where, and restore the file from a backup",
            ),
        })
    }

    async fn consumers(&self, connection: &mut SqliteConnection) -> Result<Vec<Finding>, sqlx::Error> {
        let sql = self.text(include_str!("../../sql/sqlite/examine_consumers.sql"));
        let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await?;
        let read = |row: &sqlx::sqlite::SqliteRow| Ok((row.try_get("name")?, row.try_get("since")?));
        let held_back = rows.iter().map(read).collect::<Result<Vec<_>, sqlx::Error>>()?;
        Ok(consumers(&held_back, &self.text("{cursors}")))
    }

    /// A template with the outbox's names, its header left out.
    fn text(&self, template: &str) -> String {
        super::statements::render(&self.names, template, &[])
    }
}

async fn number(connection: &mut SqliteConnection, pragma: &'static str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(pragma).persistent(false).fetch_one(connection).await
}

/// Takes the write lock and makes a table that is never committed: on a file that cannot be written, the lock alone is
/// given without a word.
async fn try_to_write(connection: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("begin immediate").await?;
    let tried = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await;
    transaction.rollback().await?;
    tried.map(drop)
}

async fn writable(connection: &mut SqliteConnection, names: &Names) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "writable";
    let sql = format!("create table \"{}examined\" (n integer)", names.prefix());
    match try_to_write(connection, sql).await {
        Ok(()) => Ok(Finding::fine(NAME, "the file can be written")),
        Err(error) if code(&error).is_some_and(is_conflict) => Ok(Finding::warning(
            NAME,
            "somebody holds the write lock for longer than a connection waits for it",
            "look for programs that keep transactions open",
        )),
        Err(error) if code(&error).is_some() => Ok(from_error(NAME, &for_relay("writing", error))),
        Err(error) => Err(error),
    }
}
