//! The server: its version, and settings on which promises rest.

use postrider_core::operate::Finding;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{Given, PostgresStore};
use crate::examine::Thresholds;

/// The oldest server with what the statements use.
const OLDEST: i32 = 130_000;

/// Words in `version()` of servers that speak PostgreSQL's protocol and are something else underneath.
const LOOK_ALIKES: [(&str, &str); 5] = [
    ("CockroachDB", "CockroachDB"),
    ("-YB-", "YugabyteDB"),
    ("Redshift", "Redshift"),
    ("Materialize", "Materialize"),
    ("QuestDB", "QuestDB"),
];

pub(super) async fn look(store: &PostgresStore, thresholds: &Thresholds) -> Result<Vec<Finding>, sqlx::Error> {
    let sql = store.text(include_str!("../../../sql/postgres/examine_server.sql"));
    let rows = store.ask(sql, Given::default()).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let (version, number): (String, i32) = (row.try_get("version")?, row.try_get("number")?);
    let mut findings = vec![server(&version, number), isolation(row)?, writable(row)?];
    findings.extend(durability(row)?);
    findings.push(autovacuum(row.try_get("autovacuum")?));
    findings.push(connections(row, thresholds)?);
    let (statement, idle): (String, String) = (row.try_get("statement_timeout")?, row.try_get("idle_timeout")?);
    findings.push(Finding::fine(
        "time-limits",
        format!("statement_timeout is {statement}, idle_in_transaction_session_timeout is {idle} (0 is none)"),
    ));
    Ok(findings)
}

fn server(version: &str, number: i32) -> Finding {
    const NAME: &str = "server-version";
    if let Some((_, found)) = LOOK_ALIKES.iter().find(|(word, _)| version.contains(word)) {
        return Finding::problem(
            NAME,
            format!(
                "the server is {found}, which looks like PostgreSQL but locks and orders differently; nothing is promised on it"
            ),
            "use PostgreSQL 13 or newer",
        );
    }
    let major = number / 10_000;
    match number < OLDEST {
        true => Finding::problem(NAME, format!("the server is PostgreSQL {major}"), "upgrade it to 13 or newer"),
        false => Finding::fine(NAME, format!("the server is PostgreSQL {major}")),
    }
}

/// SQL that changes a setting for this role in this database.
fn set_for_role(row: &PgRow, setting: &str, value: &str) -> Result<String, sqlx::Error> {
    let (role, database): (String, String) = (row.try_get("role")?, row.try_get("database")?);
    Ok(format!("run: alter role {role} in database {database} set {setting} = '{value}'"))
}

fn isolation(row: &PgRow) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "isolation";
    let level: String = row.try_get("isolation")?;
    if level == "read committed" {
        return Ok(Finding::fine(NAME, "transactions are read committed"));
    }
    let what =
        format!("transactions are {level} where nothing else is said, so relays that meet on rows fail and try again");
    Ok(Finding::warning(NAME, what, set_for_role(row, "default_transaction_isolation", "read committed")?))
}

fn writable(row: &PgRow) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "writable";
    if row.try_get("standby")? {
        return Ok(Finding::problem(NAME, "the server is a standby, nothing can be written", "connect to the primary"));
    }
    if row.try_get("read_only")? {
        let fix = set_for_role(row, "default_transaction_read_only", "off")?;
        return Ok(Finding::problem(NAME, "transactions are read-only where nothing else is said", fix));
    }
    Ok(Finding::fine(NAME, "the server takes writes"))
}

fn durability(row: &PgRow) -> Result<Vec<Finding>, sqlx::Error> {
    const NAME: &str = "durability";
    let mut findings = Vec::new();
    for (setting, loss) in [
        ("fsync", "a crash of the server's host may lose committed messages and destroy the database"),
        ("full_page_writes", "a crash in the middle of a write may destroy pages of the database"),
    ] {
        if !row.try_get::<bool, _>(setting)? {
            let fix = format!("run: alter system set {setting} = on; select pg_reload_conf()");
            findings.push(Finding::problem(NAME, format!("{setting} is off: {loss}"), fix));
        }
    }
    let commit: String = row.try_get("synchronous_commit")?;
    if commit == "off" {
        let what = "synchronous_commit is off: a crash of the server may lose messages that were committed in the last moments";
        findings.push(Finding::warning(NAME, what, set_for_role(row, "synchronous_commit", "on")?));
    }
    if findings.is_empty() {
        findings.push(Finding::fine(NAME, format!("commits are synced to disk, synchronous_commit is {commit}")));
    }
    Ok(findings)
}

fn autovacuum(on: bool) -> Finding {
    const NAME: &str = "autovacuum";
    match on {
        true => Finding::fine(NAME, "the server vacuums by itself"),
        false => Finding::warning(
            NAME,
            "autovacuum is off for the whole server: dead row versions stay, and claims become slower day by day",
            "run: alter system set autovacuum = on; select pg_reload_conf()",
        ),
    }
}

fn connections(row: &PgRow, thresholds: &Thresholds) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "connections";
    let (most, used): (i64, i64) = (row.try_get("connections")?, row.try_get("connected")?);
    if most - used >= thresholds.free_connections {
        return Ok(Finding::fine(NAME, format!("{used} of {most} connections are in use")));
    }
    let what = format!("{used} of {most} connections are in use; a relay that reconnects may be turned away");
    Ok(Finding::warning(NAME, what, "raise max_connections, make pools smaller, or put a pooler in between"))
}

#[cfg(test)]
mod tests {
    use postrider_core::operate::Severity;

    use super::*;

    #[test]
    fn servers_that_are_old_or_only_look_like_postgresql_are_problems() {
        for (version, number) in [
            ("PostgreSQL 12.17 on x86_64-pc-linux-gnu", 120_017),
            ("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)", 130_000),
            ("PostgreSQL 15.2-YB-2.21.0.0-b0 on x86_64-pc-linux-gnu", 150_002),
        ] {
            assert_eq!(server(version, number).severity, Severity::Problem, "{version}");
        }
        assert_eq!(server("PostgreSQL 15.14 (Debian 15.14-0+deb12u1)", 150_014).severity, Severity::Fine);
    }
}
