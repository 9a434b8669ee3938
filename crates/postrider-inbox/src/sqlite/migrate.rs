//! Making the tables, in one transaction that holds the write lock: two processes do not meet, and a failure half way
//! leaves nothing behind.

use sqlx::{AssertSqlSafe, Connection, Sqlite, SqliteConnection};

use crate::InboxError;
use crate::sql::{Dialect, InboxTables, Statements};

pub(super) async fn run(connection: &mut SqliteConnection, tables: &InboxTables) -> Result<(), InboxError> {
    let statements = tables.statements::<Sqlite>()?;
    Ok(create(connection, statements).await.map_err(Sqlite::failed)?)
}

async fn create(connection: &mut SqliteConnection, statements: &Statements) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("begin immediate").await?;
    for sql in &statements.create {
        sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
