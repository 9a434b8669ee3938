//! On SQLite.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Row, Sqlite, SqlitePool};
use uuid::Uuid;

use super::{Loop, placeholders};
use crate::bench::letter::Letters;
use crate::bench::scenario::Ack;

const TABLE: &str = "
    create table if not exists bare (
      seq integer primary key, id text not null unique, namespace text not null, topic text not null,
      payload text not null, status text not null default 'pending', attempts integer not null default 0,
      next_attempt_at integer not null default 0, locked_by text, locked_until integer,
      created_at integer not null default 0, updated_at integer not null default 0);
    create index if not exists bare_due_idx on bare (next_attempt_at) where status = 'pending'";

/// Later than every due time.
const FAR: i64 = i64::MAX / 2;

const CLAIM: &str = "
    update {table} set status = 'processing', attempts = attempts + 1, locked_by = ?1, locked_until = ?2, updated_at = ?2
    where seq in (select seq from {table} where status = 'pending' and namespace = 'bench' and next_attempt_at <= ?2
                  order by next_attempt_at limit ?3)
    returning seq, payload";

pub async fn create(pool: &SqlitePool) -> Result<()> {
    sqlx::raw_sql(TABLE).execute(pool).await?;
    Ok(())
}

/// An insert of so many rows, with id and payload of each.
pub fn insert(rows: u32) -> String {
    let values = vec!["(?, 'bench', 'letter', ?)"; rows as usize].join(", ");
    format!("insert into bare (id, namespace, topic, payload) values {values}")
}

/// Writes rows in one statement.
pub async fn fill(pool: &SqlitePool, from: u32, count: u32, letters: &Letters) -> Result<()> {
    let rows = (from..from + count).map(|n| (Uuid::now_v7().to_string(), letters.text(n)));
    let insert = rows.fold(sqlx::query(AssertSqlSafe(insert(count))), |insert, (id, text)| insert.bind(id).bind(text));
    insert.execute(pool).await?;
    Ok(())
}

/// See [`Loop`].
pub struct SqliteLoop {
    connection: PoolConnection<Sqlite>,
    claim: Arc<str>,
    ack: Arc<str>,
    batch: usize,
    claimed: Vec<i64>,
}

impl SqliteLoop {
    pub async fn on(pool: &SqlitePool, table: &str, batch: u32, ack: Ack) -> Result<Self> {
        let list = placeholders(batch as usize);
        let ack = match ack {
            Ack::Delete => format!("delete from {table} where seq in ({list}) and status = 'processing'"),
            Ack::Keep => format!(
                "update {table} set status = 'delivered', updated_at = 1 where seq in ({list}) and status = 'processing'"
            ),
        };
        let (connection, claim) = (pool.acquire().await?, CLAIM.replace("{table}", table));
        Ok(Self { connection, claim: claim.into(), ack: ack.into(), batch: batch as usize, claimed: Vec::new() })
    }

    /// A short batch is filled up with its last row, so that one prepared statement does for all.
    fn padded(&self) -> impl Iterator<Item = i64> {
        let last = self.claimed.last().copied().unwrap_or_default();
        (0..self.batch).map(move |at| self.claimed.get(at).copied().unwrap_or(last))
    }
}

#[async_trait]
impl Loop for SqliteLoop {
    async fn claim(&mut self) -> Result<Vec<u32>> {
        let claim = sqlx::query(AssertSqlSafe(self.claim.clone())).bind(Uuid::nil().to_string()).bind(FAR);
        let rows = claim.bind(self.batch as i64).fetch_all(&mut *self.connection).await?;
        self.claimed = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        rows.iter().map(|row| super::number(row.try_get(1)?)).collect()
    }

    async fn ack(&mut self) -> Result<()> {
        let ack = self.padded().fold(sqlx::query(AssertSqlSafe(self.ack.clone())), |ack, seq| ack.bind(seq));
        ack.execute(&mut *self.connection).await?;
        Ok(())
    }
}
