//! The indexes, and how SQLite would run a claim.

use std::collections::HashMap;

use postrider_core::operate::Finding;
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::SqliteStore;
use crate::sqlite::migrate;

pub(super) async fn look(connection: &mut SqliteConnection, store: &SqliteStore) -> Result<Vec<Finding>, sqlx::Error> {
    let mut findings = indexes(connection, store).await?;
    findings.push(plan(connection, store).await?);
    Ok(findings)
}

/// SQLite keeps the text of `create index`, so it must be the migrations'.
async fn indexes(connection: &mut SqliteConnection, store: &SqliteStore) -> Result<Vec<Finding>, sqlx::Error> {
    const NAME: &str = "index";
    let sql = "select name, sql from sqlite_schema where type = 'index' and tbl_name = ?1 and sql is not null";
    let rows = sqlx::query(sql).persistent(false).bind(store.names.table()).fetch_all(connection).await?;
    let read = |row: &sqlx::sqlite::SqliteRow| Ok((row.try_get(0)?, plain(row.try_get(1)?)));
    let found = rows.iter().map(read).collect::<Result<HashMap<String, String>, sqlx::Error>>()?;
    let expected = expected(store);
    let mut findings = Vec::new();
    for (name, create) in &expected {
        match found.get(name) {
            None => findings.push(Finding::problem(
                NAME,
                format!(
                    "the index {name} is missing; statements that need it read the whole table, or keys are not unique"
                ),
                format!("run: {create}"),
            )),
            Some(text) if text != create => findings.push(Finding::problem(
                NAME,
                format!("the index {name} is about other columns or rows than it should be"),
                format!("run: drop index \"{name}\"; {create}"),
            )),
            Some(_) => {}
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine(NAME, format!("all {} indexes are there", expected.len())));
    }
    Ok(findings)
}

/// The indexes of the migrations by name, as one line of SQL each.
fn expected(store: &SqliteStore) -> Vec<(String, String)> {
    let script = migrate::script(store.layout());
    let text: Vec<&str> = script.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let statements = text.join("\n").split(';').map(plain).collect::<Vec<_>>();
    let own = format!(" on \"{}\" ", store.names.table());
    let is_index = |sql: &&String| {
        (sql.starts_with("create index ") || sql.starts_with("create unique index ")) && sql.contains(&own)
    };
    let named = |sql: String| Some((sql.split('"').nth(1)?.to_owned(), sql));
    statements.iter().filter(is_index).cloned().filter_map(named).collect()
}

/// On one line, and as SQLite writes the first words.
fn plain(sql: &str) -> String {
    let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    sql.replacen("CREATE INDEX", "create index", 1).replacen("CREATE UNIQUE INDEX", "create unique index", 1)
}

async fn plan(connection: &mut SqliteConnection, store: &SqliteStore) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "claim-plan";
    let claim = store.statements().all().into_iter().find(|(name, _)| *name == "claim");
    let Some((_, sql)) = claim else { return Ok(Finding::not_examined(NAME, "there is no claim to look at")) };
    let explain = AssertSqlSafe(format!("explain query plan {sql}"));
    let rows = sqlx::query(explain).persistent(false).fetch_all(connection).await?;
    let lines = rows.iter().map(|row| row.try_get(3)).collect::<Result<Vec<String>, _>>()?;
    let (table, due) = (store.names.table(), format!("{}_due_idx", store.names.table()));
    let whole = lines.iter().any(|line| line.starts_with(&format!("SCAN {table}")) && !line.contains("USING"));
    Ok(match lines.iter().any(|line| line.contains(&due)) && !whole {
        true => Finding::fine(NAME, format!("a claim finds its rows by {due}")),
        false => Finding::problem(
            NAME,
            format!("a claim would read the whole table instead of {due}"),
            "see that the indexes are there, then run: analyze",
        ),
    })
}
