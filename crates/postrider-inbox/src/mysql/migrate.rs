//! Making the tables. MySQL's DDL is not transactional, but each statement can be run again, by several at once too.

use sqlx::{AssertSqlSafe, MySql, MySqlConnection};

use crate::InboxError;
use crate::sql::{Dialect, InboxTables};

pub(super) async fn run(connection: &mut MySqlConnection, tables: &InboxTables) -> Result<(), InboxError> {
    let statements = tables.statements::<MySql>()?;
    for sql in &statements.create {
        sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *connection).await.map_err(MySql::failed)?;
    }
    Ok(())
}
