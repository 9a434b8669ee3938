//! Making the tables, in one transaction that holds the write lock: two processes do not meet, and a failure half way
//! leaves nothing behind.

use sqlx::{AssertSqlSafe, Connection, Sqlite, SqliteConnection};

use crate::InboxError;
use crate::sql::{Dialect, InboxTables};

pub(super) async fn run(connection: &mut SqliteConnection, tables: &InboxTables) -> Result<(), InboxError> {
    Ok(create(connection, tables).await.map_err(Sqlite::failed)?)
}

async fn create(connection: &mut SqliteConnection, tables: &InboxTables) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("begin immediate").await?;
    for sql in &tables.statements::<Sqlite>().create {
        sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
