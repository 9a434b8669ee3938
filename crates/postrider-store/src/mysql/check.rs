//! Refusing servers and sessions that would change data silently.

use postrider_core::store::{StoreError, StoreErrorKind};
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::error::for_relay;
use super::statements::render;
use crate::names::Names;

const SESSION: &str = "select cast(version() as char), cast(@@sql_mode as char), cast(@@character_set_client as char), \
    cast(@@character_set_connection as char), cast(@@character_set_results as char), cast(@@autocommit + 0 as char), \
    cast(@@completion_type as char)";

const ENGINE: &str = "select cast(engine as char) from information_schema.tables \
    where table_schema = {database} and table_name = '{name}'";

/// Looks at a session; called for each connection that the relay takes from its pool.
pub(super) async fn session(connection: &mut MySqlConnection) -> Result<(), StoreError> {
    let failed = |error| for_relay("check the session", error);
    let row = sqlx::query(SESSION).fetch_one(connection).await.map_err(failed)?;
    let read = |at: usize| row.try_get::<Option<String>, _>(at).map(Option::unwrap_or_default).map_err(failed);
    version(&read(0)?)?;
    let mode = read(1)?;
    if !mode.split(',').any(|word| matches!(word, "STRICT_TRANS_TABLES" | "STRICT_ALL_TABLES")) {
        return Err(refused(format!(
            "the session's sql_mode is {mode:?}, which lets the server cut values off silently; add STRICT_TRANS_TABLES to sql_mode"
        )));
    }
    if mode.split(',').any(|word| word == "EMPTY_STRING_IS_NULL") {
        return Err(refused(format!(
            "the session's sql_mode is {mode:?}, which makes null of empty texts; take EMPTY_STRING_IS_NULL out of sql_mode"
        )));
    }
    for (at, setting) in [(2, "character_set_client"), (3, "character_set_connection"), (4, "character_set_results")] {
        let charset = read(at)?;
        if charset != "utf8mb4" {
            return Err(refused(format!(
                "the session's {setting} is {charset:?}, which changes texts on their way; connect with charset utf8mb4 (set names utf8mb4)"
            )));
        }
    }
    let autocommit = read(5)?;
    if autocommit != "1" {
        return Err(refused(format!(
            "the session's autocommit is {autocommit:?}, so that a statement by itself would never be committed; set autocommit to 1"
        )));
    }
    let completion = read(6)?;
    if completion != "NO_CHAIN" {
        return Err(refused(format!(
            "the session's completion_type is {completion:?}, so that a commit would begin another transaction or end the session; set completion_type to NO_CHAIN"
        )));
    }
    Ok(())
}

/// Looks at the table's engine; a table that is not there yet is fine.
pub(super) async fn engine(connection: &mut MySqlConnection, names: &Names) -> Result<(), StoreError> {
    let failed = |error| for_relay("check the table's engine", error);
    let database = names.schema().map_or("database()".to_owned(), |schema| format!("'{schema}'"));
    let sql = render(names, ENGINE, &[("{database}", &database)]);
    let row = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_optional(connection).await.map_err(failed)?;
    let engine: Option<String> = row.map(|row| row.try_get(0)).transpose().map_err(failed)?.flatten();
    match engine {
        Some(engine) if !engine.eq_ignore_ascii_case("InnoDB") => Err(refused(format!(
            "the table {} has the engine {engine}, which has no transactions; run: alter table {} engine = InnoDB",
            names.table(),
            names.table()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a server that lacks `skip locked`, expressions as defaults, or checked constraints.
fn version(text: &str) -> Result<(), StoreError> {
    let maria = text.contains("MariaDB");
    // Some MariaDB servers put a number before their own, for old replicas.
    let own = text.strip_prefix("5.5.5-").unwrap_or(text);
    let mut parts = own.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = [(); 3].map(|()| parts.next().unwrap_or(0));
    let (least, name) = if maria { ([10, 6, 0], "MariaDB 10.6") } else { ([8, 0, 16], "MySQL 8.0.16") };
    match version < least {
        true => Err(refused(format!("the server is {text}, Postrider needs {name} or newer; upgrade the server"))),
        false => Ok(()),
    }
}

fn refused(context: String) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_too_old_are_refused() {
        for good in [
            "8.0.16",
            "8.0.36-0ubuntu0.22.04.1",
            "8.4.0",
            "9.1.0",
            "10.6.0-MariaDB",
            "5.5.5-10.11.6-MariaDB-log",
            "11.4.2-MariaDB",
        ] {
            assert!(version(good).is_ok(), "{good}");
        }
        for bad in ["5.7.44", "8.0.15", "10.5.23-MariaDB", "5.5.5-10.3.39-MariaDB", ""] {
            let refused = version(bad).expect_err(bad);
            assert_eq!(refused.kind(), StoreErrorKind::Refused);
            assert!(refused.to_string().contains("or newer"));
        }
    }
}
