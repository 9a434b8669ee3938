//! Making the tables, in one transaction under an advisory lock: two processes do not meet, and a failure half way leaves
//! nothing behind.

use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres};

use crate::InboxError;
use crate::sql::{Dialect, InboxTables, Statements};

pub(super) async fn run(connection: &mut PgConnection, tables: &InboxTables) -> Result<(), InboxError> {
    let statements = tables.statements::<Postgres>()?;
    Ok(create(connection, tables, statements).await.map_err(Postgres::failed)?)
}

async fn create(
    connection: &mut PgConnection,
    tables: &InboxTables,
    statements: &Statements,
) -> Result<(), sqlx::Error> {
    let schema = tables.schema().unwrap_or("public");
    let mut transaction = connection.begin().await?;
    sqlx::query("select pg_advisory_xact_lock(hashtextextended($1, 0))")
        .persistent(false)
        .bind(format!("postrider inbox {schema}.{} migrate", tables.messages()))
        .execute(&mut *transaction)
        .await?;
    // `create schema if not exists` wants a privilege even when the schema is there, so it is looked for first.
    let there: bool = sqlx::query_scalar("select exists (select from pg_namespace where nspname = $1)")
        .persistent(false)
        .bind(schema)
        .fetch_one(&mut *transaction)
        .await?;
    if !there {
        let sql = format!("create schema \"{schema}\"");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await?;
    }
    for sql in &statements.create {
        sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
