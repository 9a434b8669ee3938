//! The table: its format, its key columns, its indexes, the plan of a claim, and the producers' turns.

use postrider_core::operate::Finding;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::MySqlStore;
use super::account::{is_denied, is_read_only};
use crate::mysql::enqueue::TURNS;
use crate::mysql::statements::Walk;

/// Each key column with its type, its collation, and how it is declared.
const KEYS: [(&str, &str, &str, &str); 4] = [
    ("namespace", "varchar", "ascii_bin", "varchar(200) character set ascii collate ascii_bin not null"),
    ("topic", "varchar", "ascii_bin", "varchar(200) character set ascii collate ascii_bin not null"),
    ("key", "varbinary", "", "varbinary(512) null"),
    ("dedupe_key", "varbinary", "", "varbinary(512) null"),
];

/// The ending of each index, whether it is unique, and its columns.
const INDEXES: [(&str, bool, &str); 6] = [
    ("id_idx", true, "id"),
    ("dedupe_idx", true, "dedupe_key,namespace,topic"),
    ("due_idx", false, "status,namespace,next_attempt_at"),
    ("lane_idx", false, "status,namespace,topic,tenant_id,next_attempt_at"),
    ("lease_idx", false, "status,locked_until,updated_at"),
    ("key_idx", false, "status,namespace,key,tenant_id"),
];

pub(super) async fn look(connection: &mut MySqlConnection, store: &MySqlStore) -> Result<Vec<Finding>, sqlx::Error> {
    let mut findings = columns(connection, store).await?;
    let indexes = indexes(connection, store).await?;
    let all_there = indexes.iter().all(|finding| finding.fix.is_none());
    findings.extend(indexes);
    if all_there {
        // The statements name their index, so without it there is no plan to look at.
        findings.push(plan(connection, store).await?);
    }
    findings.extend(turns(connection, store).await?);
    Ok(findings)
}

async fn about(connection: &mut MySqlConnection, store: &MySqlStore, sql: &str) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let query = sqlx::query(AssertSqlSafe(store.text(sql))).persistent(false);
    query.bind(store.names.schema()).bind(store.names.table()).fetch_all(connection).await
}

async fn columns(connection: &mut MySqlConnection, store: &MySqlStore) -> Result<Vec<Finding>, sqlx::Error> {
    let rows = about(connection, store, include_str!("../../../sql/mysql/examine_table.sql")).await?;
    let mut findings = Vec::new();
    let format: Option<String> = rows.first().map(|row| row.try_get("row_format")).transpose()?;
    findings.push(match format.as_deref() {
        None | Some("Dynamic" | "DYNAMIC") => Finding::fine("row-format", "the table's row format is dynamic"),
        Some(format) => Finding::warning(
            "row-format",
            format!("the table's row format is {format}: long payloads are kept in part beside the keys, and claims read more"),
            store.text("run: alter table {table} row_format = dynamic"),
        ),
    });
    let before = findings.len();
    for row in &rows {
        let (name, kind, collation): (String, String, String) =
            (row.try_get("name")?, row.try_get("type")?, row.try_get("collation")?);
        let Some((_, right_kind, right, declared)) = KEYS.iter().find(|(column, ..)| *column == name) else { continue };
        if kind != *right_kind || collation != *right {
            findings.push(Finding::problem(
                "collation",
                format!("the column {name} is {kind} {collation}: keys that differ in case, accents or trailing spaces are taken for one"),
                store.text(&format!("run: alter table {{table}} modify `{name}` {declared}")),
            ));
        }
    }
    if findings.len() == before {
        findings.push(Finding::fine("collation", "keys are compared byte by byte"));
    }
    Ok(findings)
}

async fn indexes(connection: &mut MySqlConnection, store: &MySqlStore) -> Result<Vec<Finding>, sqlx::Error> {
    const NAME: &str = "index";
    let rows = about(connection, store, include_str!("../../../sql/mysql/examine_indexes.sql")).await?;
    let read =
        |row: &MySqlRow| Ok((row.try_get("name")?, row.try_get::<i64, _>("non_unique")? == 0, row.try_get("columns")?));
    let found = rows.iter().map(read).collect::<Result<Vec<(String, bool, String)>, sqlx::Error>>()?;
    let mut findings = Vec::new();
    for (suffix, unique, columns) in INDEXES {
        let name = format!("{}_{suffix}", store.names.table());
        let kind = if unique { "unique key" } else { "key" };
        let quoted = columns.split(',').map(|column| format!("`{column}`")).collect::<Vec<_>>().join(", ");
        let add = format!("add {kind} {name} ({quoted})");
        match found.iter().find(|(found, ..)| *found == name) {
            None => findings.push(Finding::problem(
                NAME,
                format!("the index {name} is missing; the statements that name it fail"),
                store.text(&format!("run: alter table {{table}} {add}")),
            )),
            Some((_, is_unique, of)) if *is_unique != unique || of != columns => findings.push(Finding::problem(
                NAME,
                format!("the index {name} is about {of} instead of {columns}"),
                store.text(&format!("run: alter table {{table}} drop key {name}, {add}")),
            )),
            Some(_) => {}
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine(NAME, format!("all {} indexes are there", INDEXES.len())));
    }
    Ok(findings)
}

async fn plan(connection: &mut MySqlConnection, store: &MySqlStore) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "claim-plan";
    let Walk::Ours(statements) = &store.statements().walk else {
        return Ok(Finding::not_examined(NAME, "the table's indexes are its owner's"));
    };
    let sql = format!("explain {}", statements.claim_due);
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
    let query = query.bind("").bind(10).bind(None::<String>).bind(None::<String>).bind(100_i64);
    let rows = match query.fetch_all(connection).await {
        Err(error) if is_denied(&error) || is_read_only(&error) => {
            return Ok(Finding::not_examined(NAME, "this account may not claim here, and so not ask for the plan"));
        }
        answer => answer?,
    };
    let due = format!("{}_due_idx", store.names.table());
    let key = rows.first().map(|row| row.try_get_unchecked::<Option<String>, _>("key")).transpose()?.flatten();
    Ok(match key {
        Some(key) if key == due => Finding::fine(NAME, format!("a claim finds its rows by {due}")),
        _ => Finding::problem(
            NAME,
            format!("a claim would read the whole table instead of {due}"),
            store.text("run: analyze table {table}"),
        ),
    })
}

async fn turns(connection: &mut MySqlConnection, store: &MySqlStore) -> Result<Vec<Finding>, sqlx::Error> {
    const NAME: &str = "turns";
    let sql = store.text("select count(*) from {turns}");
    let count: i64 = match sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await {
        Err(error) if is_denied(&error) => {
            let why = "this account may not see the producers' turns; a relay need not, an operator can";
            return Ok(vec![Finding::not_examined(NAME, why)]);
        }
        answer => answer?,
    };
    Ok(vec![match count < i64::from(TURNS) {
        true => Finding::problem(
            NAME,
            format!(
                "{count} of the producers' {TURNS} turns are there: producers with the same dedupe key may deadlock"
            ),
            "run postrider migrate, which fills them in",
        ),
        false => Finding::fine(NAME, "the producers' turns are all there"),
    }])
}
