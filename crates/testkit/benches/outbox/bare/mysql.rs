//! On MySQL and MariaDB.

use anyhow::Result;
use sqlx::{AssertSqlSafe, Connection, MySqlPool, Row};
use uuid::Uuid;

use super::{BATCH, placeholders};

const TABLE: &str = "
    create table bare (
      seq bigint not null auto_increment primary key, id char(36) character set ascii not null unique,
      namespace varchar(200) not null, topic varchar(200) not null, payload longtext not null,
      status varchar(16) character set ascii not null default 'pending', attempts int not null default 0,
      next_attempt_at datetime(6) not null default (utc_timestamp(6)), locked_by char(36) character set ascii,
      locked_until datetime(6), created_at datetime(6) not null default (utc_timestamp(6)),
      updated_at datetime(6) not null default (utc_timestamp(6)),
      key bare_due_idx (status, next_attempt_at))";

const SELECT: &str = "
    select seq, id, payload from {table} where status = 'pending' and namespace = 'bench' and next_attempt_at <= utc_timestamp(6)
    order by next_attempt_at limit 1000 for update skip locked";

pub async fn create(pool: &MySqlPool) -> Result<()> {
    sqlx::raw_sql(TABLE).execute(pool).await?;
    Ok(())
}

/// Writes rows, a thousand per statement.
pub async fn fill(pool: &MySqlPool, rows: usize, payload: &str) -> Result<()> {
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
pub async fn drain(pool: &MySqlPool, table: &str, delete: bool) -> Result<usize> {
    let mut connection = pool.acquire().await?;
    let (list, select) = (placeholders(BATCH), SELECT.replace("{table}", table));
    let claim = format!(
        "update {table} set status = 'processing', attempts = attempts + 1, locked_by = ?, \
         locked_until = utc_timestamp(6) + interval 30 second, updated_at = utc_timestamp(6) where seq in ({list})"
    );
    let ack = match delete {
        true => format!("delete from {table} where seq in ({list}) and status = 'processing'"),
        false => format!(
            "update {table} set status = 'delivered', updated_at = utc_timestamp(6) where seq in ({list}) and status = 'processing'"
        ),
    };
    let (mut drained, worker) = (0, Uuid::nil().to_string());
    loop {
        let mut transaction = connection.begin().await?;
        let rows = sqlx::query(AssertSqlSafe(select.as_str())).fetch_all(&mut *transaction).await?;
        let seqs = rows.iter().map(|row| row.try_get::<i64, _>(0)).collect::<Result<Vec<_>, _>>()?;
        let Some(last) = seqs.last().copied() else { return Ok(drained) };
        drained += seqs.len();
        let padded = || (0..BATCH).map(|at| seqs.get(at).copied().unwrap_or(last));
        let update =
            padded().fold(sqlx::query(AssertSqlSafe(claim.as_str())).bind(&worker), |query, seq| query.bind(seq));
        update.execute(&mut *transaction).await?;
        transaction.commit().await?;
        let settle = padded().fold(sqlx::query(AssertSqlSafe(ack.as_str())), |query, seq| query.bind(seq));
        settle.execute(&mut *connection).await?;
    }
}
