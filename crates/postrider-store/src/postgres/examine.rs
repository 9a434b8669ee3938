//! Looking for what is set up wrong. Reads the catalog and the server's statistics, and changes nothing.
//!
//! Each look is one statement in a transaction of its own, so that it works through a pooler, and one that fails spoils
//! no other.

mod activity;
mod indexes;
mod plan;
mod pooler;
mod proof;
mod role;
mod server;
mod tenants;

use postrider_core::operate::{Finding, Severity};
use postrider_core::store::StoreError;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments, AssertSqlSafe, Encode, Postgres, Row, Type};

use super::error::for_relay;
use super::{PostgresStore, migrate};
use crate::examine::{Reading, Thresholds, clock_skew, consumers, consumers_unseen, now_micros, schema};

/// How often the clock is looked at.
const LOOKS: usize = 3;
/// "Insufficient privilege".
const DENIED: &str = "42501";

impl PostgresStore {
    /// Looks for what is set up wrong, and says how to mend it. Changes nothing.
    pub async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.examine_within(&Thresholds::default()).await
    }

    /// [`examine`](Self::examine) with other thresholds.
    pub async fn examine_within(&self, thresholds: &Thresholds) -> Result<Vec<Finding>, StoreError> {
        let failed = |error| for_relay("examine", error);
        let mut findings = server::look(self, thresholds).await.map_err(failed)?;
        findings.push(pooler::look(self).await.map_err(failed)?);
        findings.push(self.clock(thresholds).await.map_err(failed)?);
        findings.extend(activity::transactions(self, thresholds).await.map_err(failed)?);
        findings.push(activity::slots(self, thresholds).await.map_err(failed)?);
        if !self.layout.is_ours() {
            // Somebody else's table: what is known of ours is not asked of it.
            findings.extend(self.check_layout().await?);
            findings.extend(activity::table(self, thresholds).await.map_err(failed)?.0);
            return Ok(findings);
        }
        let (role, may_look) = role::look(self).await.map_err(failed)?;
        findings.extend(role);
        if !may_look {
            return Ok(findings);
        }
        let (version, is_there) = schema(self.pending().await, migrate::LATEST)?;
        // Only then are all tables there.
        let is_latest = version.severity == Severity::Fine;
        findings.push(version);
        if is_there {
            let (table, rows) = activity::table(self, thresholds).await.map_err(failed)?;
            findings.extend(table);
            findings.extend(indexes::look(self).await.map_err(failed)?);
            findings.push(plan::look(self, rows >= thresholds.large_table).await.map_err(failed)?);
        }
        if is_latest {
            findings.extend(self.consumers().await.map_err(failed)?);
        }
        Ok(findings)
    }

    async fn clock(&self, thresholds: &Thresholds) -> Result<Finding, sqlx::Error> {
        let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let mut connection = self.runner.pool.acquire().await?;
        let mut readings = Vec::new();
        for _ in 0..LOOKS {
            let before = now_micros();
            let theirs = sqlx::query_scalar(sql).persistent(false).fetch_one(&mut *connection).await?;
            readings.push(Reading { before, theirs, after: now_micros() });
        }
        Ok(clock_skew(&readings, thresholds.clock_skew))
    }

    async fn consumers(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let sql = self.text(include_str!("../../sql/postgres/examine_consumers.sql"));
        let rows = match self.ask(sql, Given::default()).await {
            Err(error) if error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(DENIED)) => {
                return Ok(vec![consumers_unseen(&self.text("{cursors}"))]);
            }
            answer => answer?,
        };
        let read = |row: &PgRow| Ok((row.try_get("name")?, row.try_get("since")?));
        let held_back = rows.iter().map(read).collect::<Result<Vec<_>, sqlx::Error>>()?;
        Ok(consumers(&held_back, &self.text("{cursors}")))
    }

    /// Runs one look.
    pub(super) async fn ask(&self, sql: String, arguments: Given) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut transaction = self.runner.pool.begin().await?;
        let query = sqlx::query_with(AssertSqlSafe(sql), arguments.0).persistent(false);
        match query.fetch_all(&mut *transaction).await {
            Ok(rows) => transaction.rollback().await.map(|()| rows),
            Err(error) => transaction.rollback().await.and(Err(error)),
        }
    }

    /// The schema and the table, as parameters.
    pub(super) fn place(&self) -> Result<Given, sqlx::Error> {
        Given::default().add(super::statements::schema(&self.names).to_owned())?.add(self.names.table().to_owned())
    }

    /// A template with the layout's columns as well.
    pub(super) fn statement(&self, template: &str) -> String {
        super::statements::render_for(&self.layout, template, &[])
    }

    /// A template with the outbox's names, its header left out.
    pub(super) fn text(&self, template: &str) -> String {
        super::statements::render(&self.names, template, &[])
    }
}

/// Parameters of a look.
#[derive(Default)]
pub(super) struct Given(PgArguments);

impl Given {
    pub(super) fn add<'q, T: Encode<'q, Postgres> + Type<Postgres> + 'q>(
        mut self,
        value: T,
    ) -> Result<Self, sqlx::Error> {
        self.0.add(value).map_err(sqlx::Error::Encode)?;
        Ok(self)
    }
}
