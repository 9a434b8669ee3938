//! On PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{AssertSqlSafe, Decode, Encode, PgPool, Postgres, Row, Type};
use uuid::Uuid;

const TABLE: &str = "
    create table bare (
      id uuid primary key, namespace text not null, topic text not null, payload jsonb not null,
      status text not null default 'pending', attempts int not null default 0,
      next_attempt_at timestamptz not null default now(), locked_by uuid, locked_until timestamptz,
      created_at timestamptz not null default now(), updated_at timestamptz not null default now());
    create index bare_due_idx on bare (next_attempt_at) where status = 'pending'";

pub const INSERT: &str = "insert into bare (id, namespace, topic, payload) values ($1, $2, $3, $4::text::jsonb)";

const CLAIM: &str = "
    update {table} set status = 'processing', attempts = attempts + 1, locked_by = $1,
      locked_until = now() + interval '30 s', updated_at = now()
    where ctid = any (array(
      select ctid from {table} where status = 'pending' and namespace = 'bench' and next_attempt_at <= now()
      order by next_attempt_at limit $2 for update skip locked))
    returning ctid, id, payload::text";

const ACK_UPDATE: &str =
    "update {table} set status = 'delivered', updated_at = now() where ctid = any ($1) and status = 'processing'";
const ACK_DELETE: &str = "delete from {table} where ctid = any ($1) and status = 'processing'";

/// A row's address, passed through as it came.
#[derive(Clone, Copy)]
struct Tid([u8; 6]);

impl Type<Postgres> for Tid {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(27))
    }
}

impl PgHasArrayType for Tid {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1010))
    }
}

impl<'r> Decode<'r, Postgres> for Tid {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self(value.as_bytes()?.try_into()?))
    }
}

impl Encode<'_, Postgres> for Tid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}

pub async fn create(pool: &PgPool) -> Result<()> {
    sqlx::raw_sql(TABLE).execute(pool).await?;
    Ok(())
}

/// Writes rows, a thousand per statement.
pub async fn fill(pool: &PgPool, rows: usize, payload: &str) -> Result<()> {
    for _ in 0..rows / 1_000 {
        let ids: Vec<Uuid> = (0..1_000).map(|_| Uuid::now_v7()).collect();
        sqlx::query("insert into bare (id, namespace, topic, payload) select id, 'bench', 'drain', $2::jsonb from unnest($1::uuid[]) as id")
            .bind(ids)
            .bind(sqlx::types::Json(serde_json::value::RawValue::from_string(payload.to_owned())?))
            .execute(pool)
            .await?;
    }
    Ok(())
}

/// Claims and acks batches of a thousand until nothing is left; answers how many rows.
pub async fn drain(pool: &PgPool, table: &str, delete: bool) -> Result<usize> {
    let mut connection = pool.acquire().await?;
    let mut drained = 0;
    let on = |sql: &str| Arc::<str>::from(sql.replace("{table}", table));
    let (claim, ack) = (on(CLAIM), on(if delete { ACK_DELETE } else { ACK_UPDATE }));
    loop {
        let rows = sqlx::query(AssertSqlSafe(claim.clone()))
            .bind(Uuid::nil())
            .bind(1_000_i64)
            .fetch_all(&mut *connection)
            .await?;
        if rows.is_empty() {
            return Ok(drained);
        }
        drained += rows.len();
        let addresses = rows.iter().map(|row| row.try_get::<Tid, _>(0)).collect::<Result<Vec<_>, _>>()?;
        sqlx::query(AssertSqlSafe(ack.clone())).bind(addresses).execute(&mut *connection).await?;
    }
}
