//! On MySQL and MariaDB.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, MySql, MySqlPool, Row};
use uuid::Uuid;

use super::{Loop, placeholders};
use crate::bench::letter::Letters;
use crate::bench::scenario::Ack;

const TABLE: &str = "
    create table if not exists bare (
      seq bigint not null auto_increment primary key, id char(36) character set ascii not null unique,
      namespace varchar(200) not null, topic varchar(200) not null, payload longtext not null,
      status varchar(16) character set ascii not null default 'pending', attempts int not null default 0,
      next_attempt_at datetime(6) not null default (utc_timestamp(6)), locked_by char(36) character set ascii,
      locked_until datetime(6), created_at datetime(6) not null default (utc_timestamp(6)),
      updated_at datetime(6) not null default (utc_timestamp(6)),
      key bare_due_idx (status, next_attempt_at))";

/// SQLSTATE of a transaction that was rolled back because of another one.
const DEADLOCK: &str = "40001";

const SELECT: &str = "
    select seq, payload from {table} where status = 'pending' and namespace = 'bench' and next_attempt_at <= utc_timestamp(6)
    order by next_attempt_at limit {batch} for update skip locked";

pub async fn create(pool: &MySqlPool) -> Result<()> {
    sqlx::raw_sql(TABLE).execute(pool).await?;
    Ok(())
}

/// An insert of so many rows, with id and payload of each.
pub fn insert(rows: u32) -> String {
    let values = vec!["(?, 'bench', 'letter', ?)"; rows as usize].join(", ");
    format!("insert into bare (id, namespace, topic, payload) values {values}")
}

/// Writes rows in one statement.
pub async fn fill(pool: &MySqlPool, from: u32, count: u32, letters: &Letters) -> Result<()> {
    let rows = (from..from + count).map(|n| (Uuid::now_v7().to_string(), letters.text(n)));
    let insert = rows.fold(sqlx::query(AssertSqlSafe(insert(count))), |insert, (id, text)| insert.bind(id).bind(text));
    insert.execute(pool).await?;
    Ok(())
}

/// See [`Loop`].
pub struct MySqlLoop {
    connection: PoolConnection<MySql>,
    select: Arc<str>,
    claim: Arc<str>,
    ack: Arc<str>,
    batch: usize,
    claimed: Vec<i64>,
}

impl MySqlLoop {
    pub async fn on(pool: &MySqlPool, table: &str, batch: u32, ack: Ack) -> Result<Self> {
        let list = placeholders(batch as usize);
        let claim = format!(
            "update {table} set status = 'processing', attempts = attempts + 1, locked_by = ?, \
             locked_until = utc_timestamp(6) + interval 30 second, updated_at = utc_timestamp(6) where seq in ({list})"
        );
        let ack = match ack {
            Ack::Delete => format!("delete from {table} where seq in ({list}) and status = 'processing'"),
            Ack::Keep => format!(
                "update {table} set status = 'delivered', updated_at = utc_timestamp(6) where seq in ({list}) and status = 'processing'"
            ),
        };
        let select = SELECT.replace("{table}", table).replace("{batch}", &batch.to_string());
        let mut connection = pool.acquire().await?;
        // As Postrider does it: no lock covers a gap, where others insert.
        sqlx::raw_sql("set session transaction isolation level read committed").execute(&mut *connection).await?;
        let (select, claim, ack) = (select.into(), claim.into(), ack.into());
        Ok(Self { connection, select, claim, ack, batch: batch as usize, claimed: Vec::new() })
    }

    /// A short batch is filled up with its last row, so that one prepared statement does for all.
    fn padded(&self) -> impl Iterator<Item = i64> {
        let last = self.claimed.last().copied().unwrap_or_default();
        (0..self.batch).map(move |at| self.claimed.get(at).copied().unwrap_or(last))
    }

    async fn try_to_claim(&mut self) -> Result<Vec<u32>> {
        let mut transaction = self.connection.begin().await?;
        let rows = sqlx::query(AssertSqlSafe(self.select.clone())).fetch_all(&mut *transaction).await?;
        self.claimed = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if let Some(last) = self.claimed.last().copied() {
            let mut update = sqlx::query(AssertSqlSafe(self.claim.clone())).bind(Uuid::nil().to_string());
            for at in 0..self.batch {
                update = update.bind(self.claimed.get(at).copied().unwrap_or(last));
            }
            update.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        rows.iter().map(|row| super::number(row.try_get(1)?)).collect()
    }

    async fn try_to_ack(&mut self) -> Result<()> {
        let ack = self.padded().fold(sqlx::query(AssertSqlSafe(self.ack.clone())), |ack, seq| ack.bind(seq));
        ack.execute(&mut *self.connection).await?;
        Ok(())
    }
}

/// Whether a transaction was the victim of a deadlock, and may be tried again.
pub fn is_deadlock(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
    error.and_then(|error| error.code()).is_some_and(|code| code == DEADLOCK)
}

#[async_trait]
impl Loop for MySqlLoop {
    async fn claim(&mut self) -> Result<Vec<u32>> {
        loop {
            match self.try_to_claim().await {
                Err(error) if is_deadlock(&error) => {}
                done => return done,
            }
        }
    }

    async fn ack(&mut self) -> Result<()> {
        loop {
            match self.try_to_ack().await {
                Err(error) if is_deadlock(&error) => {}
                done => return done,
            }
        }
    }
}
