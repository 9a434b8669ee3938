//! On PostgreSQL. Rows are settled by their addresses, as Postrider does it.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{AssertSqlSafe, Decode, Encode, PgPool, Postgres, Row, Type};
use uuid::Uuid;

use super::Loop;
use crate::bench::letter::Letters;
use crate::bench::scenario::Ack;

const TABLE: &str = "
    create table if not exists bare (
      id uuid primary key, namespace text not null, topic text not null, payload jsonb not null,
      status text not null default 'pending', attempts int not null default 0,
      next_attempt_at timestamptz not null default now(), locked_by uuid, locked_until timestamptz,
      created_at timestamptz not null default now(), updated_at timestamptz not null default now());
    create index if not exists bare_due_idx on bare (next_attempt_at) where status = 'pending'";

pub const INSERT: &str =
    "insert into bare (id, namespace, topic, payload) values ($1, 'bench', 'letter', $2::text::jsonb)";

/// Several rows in one statement.
pub const INSERT_MANY: &str = "insert into bare (id, namespace, topic, payload) \
    select id, 'bench', 'letter', payload::jsonb from unnest($1::uuid[], $2::text[]) as row(id, payload)";

const FILL: &str = "insert into bare (id, namespace, topic, payload) \
    select id, 'bench', 'letter', jsonb_build_object('n', $2::bigint + place - 1, 'pad', $3::text) \
    from unnest($1::uuid[]) with ordinality as row(id, place)";

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

/// Writes rows in one statement.
pub async fn fill(pool: &PgPool, from: u32, count: u32, letters: &Letters) -> Result<()> {
    let ids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
    sqlx::query(FILL).bind(ids).bind(i64::from(from)).bind(letters.pad()).execute(pool).await?;
    Ok(())
}

/// See [`Loop`].
pub struct PostgresLoop {
    connection: PoolConnection<Postgres>,
    claim: Arc<str>,
    ack: Arc<str>,
    batch: i64,
    claimed: Vec<Tid>,
}

impl PostgresLoop {
    pub async fn on(pool: &PgPool, table: &str, batch: u32, ack: Ack) -> Result<Self> {
        let on = |sql: &str| Arc::<str>::from(sql.replace("{table}", table));
        let ack = if ack == Ack::Delete { ACK_DELETE } else { ACK_UPDATE };
        let connection = pool.acquire().await?;
        Ok(Self { connection, claim: on(CLAIM), ack: on(ack), batch: batch.into(), claimed: Vec::new() })
    }
}

#[async_trait]
impl Loop for PostgresLoop {
    async fn claim(&mut self) -> Result<Vec<u32>> {
        let claim = sqlx::query(AssertSqlSafe(self.claim.clone())).bind(Uuid::nil()).bind(self.batch);
        let rows = claim.fetch_all(&mut *self.connection).await?;
        self.claimed = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        rows.iter().map(|row| super::number(row.try_get(2)?)).collect()
    }

    async fn ack(&mut self) -> Result<()> {
        let claimed = std::mem::take(&mut self.claimed);
        sqlx::query(AssertSqlSafe(self.ack.clone())).bind(claimed).execute(&mut *self.connection).await?;
        Ok(())
    }
}
