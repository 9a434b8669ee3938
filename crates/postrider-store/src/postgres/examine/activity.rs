//! What holds cleaning back, and how clean the table is.

use postrider_core::operate::Finding;
use sqlx::Row;

use super::{Given, PostgresStore};
use crate::clock::micros;
use crate::examine::Thresholds;
use crate::layout::verdict::unlogged;

pub(super) async fn transactions(store: &PostgresStore, thresholds: &Thresholds) -> Result<Vec<Finding>, sqlx::Error> {
    const NAME: &str = "long-transaction";
    let sql = store.text(include_str!("../../../sql/postgres/examine_transactions.sql"));
    let rows = store.ask(sql, Given::default().add(micros(thresholds.transaction))?).await?;
    let mut findings = Vec::new();
    for row in &rows {
        let (name, seconds): (String, i64) = (row.try_get("name")?, row.try_get("seconds")?);
        if row.try_get::<&str, _>("kind")? == "prepared" {
            let gid = name.replace('\'', "''");
            findings.push(Finding::warning(
                "prepared-transaction",
                format!("the prepared transaction {name:?} waits for its end since {seconds} s; no row version that died since is cleaned away, and claims walk over them"),
                format!("commit it if its coordinator says so, otherwise run: rollback prepared '{gid}'"),
            ));
            continue;
        }
        let (state, application): (String, String) = (row.try_get("state")?, row.try_get("application")?);
        findings.push(Finding::warning(
            NAME,
            format!("process {name} ({application:?}, {state}) has a transaction open since {seconds} s; no row version that died since is cleaned away, and claims walk over them"),
            format!("set idle_in_transaction_session_timeout for its role; to end it now, run: select pg_terminate_backend({name})"),
        ));
    }
    if findings.is_empty() {
        let sees = "select pg_has_role('pg_read_all_stats', 'usage')".to_owned();
        let sees: bool =
            store.ask(sees, Given::default()).await?.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        findings.push(match sees {
            true => Finding::fine(NAME, format!("no transaction is open for longer than {:?}", thresholds.transaction)),
            false => Finding::not_examined(
                NAME,
                "the transactions of other roles are seen with pg_read_all_stats only; none of this role is open for long",
            ),
        });
    }
    Ok(findings)
}

pub(super) async fn slots(store: &PostgresStore, thresholds: &Thresholds) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "replication-slot";
    let sql = store.text(include_str!("../../../sql/postgres/examine_slots.sql"));
    let rows = store.ask(sql, Given::default().add(thresholds.log_bytes)?).await?;
    let Some(row) = rows.first() else {
        return Ok(Finding::fine(NAME, "no replication slot that nobody reads holds rows or much of the log"));
    };
    let (slot, bytes): (String, i64) = (row.try_get("slot")?, row.try_get("bytes")?);
    let rows_too =
        if row.try_get("holds_rows")? { ", and row versions that died since are not cleaned away" } else { "" };
    Ok(Finding::warning(
        NAME,
        format!(
            "nobody reads the replication slot {slot:?} (one of {}); it holds {bytes} bytes of the log{rows_too}",
            rows.len()
        ),
        format!("start its reader, or run: select pg_drop_replication_slot('{slot}')"),
    ))
}

/// Findings about the table, and about how many rows it has.
pub(super) async fn table(store: &PostgresStore, thresholds: &Thresholds) -> Result<(Vec<Finding>, i64), sqlx::Error> {
    const NAME: &str = "dead-rows";
    let sql = store.text(include_str!("../../../sql/postgres/examine_table.sql"));
    let rows = store.ask(sql, store.place()?).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let (dead, live): (i64, i64) = (row.try_get("dead")?, row.try_get("live")?);
    let mut findings = vec![match dead > thresholds.dead_rows && dead > live / 4 {
        true => Finding::warning(
            NAME,
            format!("the table has {dead} dead row versions beside {live} live rows; claims walk over them"),
            store.text("run: vacuum (analyze) {table}"),
        ),
        false => Finding::fine(NAME, format!("the table has {dead} dead row versions")),
    }];
    if row.try_get("not_vacuumed")? {
        findings.push(Finding::warning(
            "autovacuum",
            "autovacuum is off for the table: dead row versions stay, and claims become slower day by day",
            store.text("run: alter table {table} reset (autovacuum_enabled)"),
        ));
    }
    // What is said of another table says it already.
    if store.layout().is_ours() && row.try_get("unlogged")? {
        findings.push(unlogged("durability", &store.text("{table}")));
    }
    Ok((findings, row.try_get("rows")?))
}
