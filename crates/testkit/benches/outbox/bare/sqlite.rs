//! On SQLite.

use anyhow::Result;
use sqlx::{AssertSqlSafe, Row, SqlitePool};
use uuid::Uuid;

use super::{BATCH, placeholders};

const TABLE: &str = "
    create table bare (
      seq integer primary key, id text not null unique, namespace text not null, topic text not null,
      payload text not null, status text not null default 'pending', attempts integer not null default 0,
      next_attempt_at integer not null default 0, locked_by text, locked_until integer,
      created_at integer not null default 0, updated_at integer not null default 0);
    create index bare_due_idx on bare (next_attempt_at) where status = 'pending'";

/// Later than every due time.
const FAR: i64 = i64::MAX / 2;

const CLAIM: &str = "
    update {table} set status = 'processing', attempts = attempts + 1, locked_by = ?1, locked_until = ?2, updated_at = ?2
    where seq in (select seq from {table} where status = 'pending' and namespace = 'bench' and next_attempt_at <= ?2
                  order by next_attempt_at limit 1000)
    returning seq, id, payload";

pub async fn create(pool: &SqlitePool) -> Result<()> {
    sqlx::raw_sql(TABLE).execute(pool).await?;
    Ok(())
}

/// Writes rows, a thousand per statement.
pub async fn fill(pool: &SqlitePool, rows: usize, payload: &str) -> Result<()> {
    let values = vec!["(?, 'bench', 'drain', ?)"; BATCH].join(", ");
    let sql = format!("insert into bare (id, namespace, topic, payload) values {values}");
    for _ in 0..rows / BATCH {
        let mut insert = sqlx::query(AssertSqlSafe(sql.as_str()));
        for _ in 0..BATCH {
            insert = insert.bind(Uuid::now_v7().to_string()).bind(payload);
        }
        insert.execute(pool).await?;
    }
    Ok(())
}

/// Claims and acks batches of a thousand until nothing is left; answers how many rows.
pub async fn drain(pool: &SqlitePool, table: &str, delete: bool) -> Result<usize> {
    let mut connection = pool.acquire().await?;
    let (list, claim) = (placeholders(BATCH), CLAIM.replace("{table}", table));
    let ack = match delete {
        true => format!("delete from {table} where seq in ({list}) and status = 'processing'"),
        false => format!(
            "update {table} set status = 'delivered', updated_at = 1 where seq in ({list}) and status = 'processing'"
        ),
    };
    let (mut drained, worker) = (0, Uuid::nil().to_string());
    loop {
        let rows =
            sqlx::query(AssertSqlSafe(claim.as_str())).bind(&worker).bind(FAR).fetch_all(&mut *connection).await?;
        let seqs = rows.iter().map(|row| row.try_get::<i64, _>(0)).collect::<Result<Vec<_>, _>>()?;
        let Some(last) = seqs.last().copied() else { return Ok(drained) };
        drained += seqs.len();
        let padded = (0..BATCH).map(|at| seqs.get(at).copied().unwrap_or(last));
        let settle = padded.fold(sqlx::query(AssertSqlSafe(ack.as_str())), |query, seq| query.bind(seq));
        settle.execute(&mut *connection).await?;
    }
}
