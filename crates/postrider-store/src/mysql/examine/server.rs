//! The server: its kind, and variables on which promises rest.

use std::collections::HashMap;

use postrider_core::message::DEFAULT_MAX_PAYLOAD;
use postrider_core::operate::Finding;
use sqlx::{MySqlConnection, Row};

use crate::examine::Thresholds;

/// The smallest packet that takes a message with the largest payload, its headers and the statement around it.
const SMALLEST_PACKET: u64 = 4 * DEFAULT_MAX_PAYLOAD as u64;
/// What a packet should have, for many messages in one statement.
const USUAL_PACKET: u64 = 16 * DEFAULT_MAX_PAYLOAD as u64;

/// Words in the version of servers that speak MySQL's protocol and are something else underneath.
const LOOK_ALIKES: [(&str, &str); 4] =
    [("tidb", "TiDB"), ("vitess", "Vitess"), ("oceanbase", "OceanBase"), ("singlestore", "SingleStore")];

/// The variables by their names in lower case.
type Variables = HashMap<String, String>;

pub(super) async fn look(
    connection: &mut MySqlConnection,
    thresholds: &Thresholds,
) -> Result<Vec<Finding>, sqlx::Error> {
    let session = read(connection, "show session variables").await?;
    let global = read(connection, "show global variables").await?;
    let status = read(connection, "show global status like 'Threads_connected'").await?;
    let mut findings = vec![server(&global), isolation(&session), sql_mode(&global), writable(&global)];
    findings.extend(durability(&global));
    findings.push(packet(&global));
    findings.push(connections(&global, &status, thresholds));
    findings.push(Finding::fine(
        "time-limits",
        format!(
            "innodb_lock_wait_timeout is {} s for producers, relays set their own; time_zone is {}, times are kept in UTC whatever it is",
            value(&session, "innodb_lock_wait_timeout"),
            value(&session, "time_zone")
        ),
    ));
    Ok(findings)
}

/// `show` sends texts as binary strings to some sessions.
async fn read(connection: &mut MySqlConnection, sql: &'static str) -> Result<Variables, sqlx::Error> {
    let rows = sqlx::raw_sql(sql).fetch_all(connection).await?;
    let text = |row: &sqlx::mysql::MySqlRow, at: usize| {
        row.try_get_unchecked::<Vec<u8>, _>(at).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    rows.iter().map(|row| Ok((text(row, 0)?.to_lowercase(), text(row, 1)?))).collect()
}

fn value<'a>(variables: &'a Variables, name: &str) -> &'a str {
    variables.get(name).map_or("", String::as_str)
}

fn is_on(variables: &Variables, name: &str) -> bool {
    matches!(value(variables, name).to_ascii_lowercase().as_str(), "on" | "1")
}

fn server(global: &Variables) -> Finding {
    const NAME: &str = "server-version";
    let version = value(global, "version");
    let words = format!("{version} {}", value(global, "version_comment")).to_lowercase();
    match LOOK_ALIKES.iter().find(|(word, _)| words.contains(word)) {
        Some((_, found)) => Finding::problem(
            NAME,
            format!("the server is {found}, which looks like MySQL but locks differently; nothing is promised on it"),
            "use MySQL 8.0.16, MariaDB 10.6 or newer",
        ),
        None => Finding::fine(NAME, format!("the server is {version}")),
    }
}

fn isolation(session: &Variables) -> Finding {
    const NAME: &str = "isolation";
    // MariaDB before 11.1 has the old name only.
    let level = ["transaction_isolation", "tx_isolation"].map(|name| value(session, name)).join("");
    match level.starts_with("SERIALIZABLE") {
        true => Finding::warning(
            NAME,
            "transactions are SERIALIZABLE where nothing else is said: producers lock what they read, and wait for each other",
            "run: set global transaction isolation level read committed",
        ),
        false => Finding::fine(NAME, format!("transactions are {level}, a relay's are READ COMMITTED")),
    }
}

/// The session's own mode is checked before every use of it; producers have sessions of their own.
fn sql_mode(global: &Variables) -> Finding {
    const NAME: &str = "sql-mode";
    let mode = value(global, "sql_mode");
    match mode.split(',').any(|word| matches!(word, "STRICT_TRANS_TABLES" | "STRICT_ALL_TABLES")) {
        true => Finding::fine(NAME, "the server's sql_mode is strict"),
        false => Finding::warning(
            NAME,
            format!(
                "the server's sql_mode is {mode:?}: where a producer says nothing else, values are cut off silently"
            ),
            "run: set global sql_mode = concat_ws(',', nullif(@@global.sql_mode, ''), 'STRICT_TRANS_TABLES')",
        ),
    }
}

fn writable(global: &Variables) -> Finding {
    const NAME: &str = "writable";
    match is_on(global, "read_only") || is_on(global, "super_read_only") {
        true => Finding::problem(
            NAME,
            "the server is read-only, so it is a replica or is being maintained",
            "connect to the primary, or run: set global read_only = 0",
        ),
        false => Finding::fine(NAME, "the server takes writes"),
    }
}

fn durability(global: &Variables) -> Vec<Finding> {
    const NAME: &str = "durability";
    let mut findings = Vec::new();
    let fix = "run: set global innodb_flush_log_at_trx_commit = 1";
    match value(global, "innodb_flush_log_at_trx_commit") {
        "0" => findings.push(Finding::problem(
            NAME,
            "innodb_flush_log_at_trx_commit is 0: a crash of the server loses messages that were committed in the last second",
            fix,
        )),
        "2" => findings.push(Finding::warning(
            NAME,
            "innodb_flush_log_at_trx_commit is 2: a crash of the host loses messages that were committed in the last second",
            fix,
        )),
        _ => {}
    }
    if is_on(global, "log_bin") && value(global, "sync_binlog") != "1" {
        let what = format!(
            "sync_binlog is {}: after a crash of the host, replicas may lack messages that were committed, or have more",
            value(global, "sync_binlog")
        );
        findings.push(Finding::warning(NAME, what, "run: set global sync_binlog = 1"));
    }
    if is_on(global, "log_bin") && value(global, "binlog_format").eq_ignore_ascii_case("statement") {
        findings.push(Finding::problem(
            "binlog-format",
            "the server logs statements, not rows, which does not go with READ COMMITTED: relays cannot claim",
            "run: set global binlog_format = 'ROW'",
        ));
    }
    if value(global, "innodb_doublewrite").eq_ignore_ascii_case("off") {
        let what = "innodb_doublewrite is off: a crash in the middle of a write may destroy pages of the database";
        findings.push(Finding::warning(NAME, what, "set innodb_doublewrite = on in the server's configuration"));
    }
    if !findings.iter().any(|finding| finding.name == NAME) {
        findings.push(Finding::fine(NAME, "commits are synced to disk"));
    }
    findings
}

fn packet(global: &Variables) -> Finding {
    const NAME: &str = "max-allowed-packet";
    let bytes = value(global, "max_allowed_packet").parse::<u64>().unwrap_or(u64::MAX);
    let fix = "run: set global max_allowed_packet = 67108864";
    if bytes < SMALLEST_PACKET {
        let what =
            format!("max_allowed_packet is {bytes} bytes; a message with the largest payload needs {SMALLEST_PACKET}");
        return Finding::problem(NAME, what, fix);
    }
    if bytes < USUAL_PACKET {
        let what = format!("max_allowed_packet is {bytes} bytes; many messages in one enqueue may be more than that");
        return Finding::warning(NAME, what, fix);
    }
    Finding::fine(NAME, format!("max_allowed_packet is {bytes} bytes"))
}

fn connections(global: &Variables, status: &Variables, thresholds: &Thresholds) -> Finding {
    const NAME: &str = "connections";
    let number = |text: &str| text.parse::<i64>().unwrap_or(0);
    let (most, used) = (number(value(global, "max_connections")), number(value(status, "threads_connected")));
    match most - used >= thresholds.free_connections {
        true => Finding::fine(NAME, format!("{used} of {most} connections are in use")),
        false => Finding::warning(
            NAME,
            format!("{used} of {most} connections are in use; a relay that reconnects may be turned away"),
            "raise max_connections, make pools smaller, or put a pooler in between",
        ),
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::operate::Severity;

    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn servers_that_only_look_like_mysql_are_problems() {
        for (version, comment) in [("8.0.11-TiDB-v7.5.1", "TiDB Server"), ("8.0.30-Vitess", "Version: 19.0")] {
            let found = server(&of(&[("version", version), ("version_comment", comment)]));
            assert_eq!(found.severity, Severity::Problem, "{found}");
        }
        let found = server(&of(&[("version", "10.11.6-MariaDB"), ("version_comment", "Debian 12")]));
        assert_eq!(found.severity, Severity::Fine, "{found}");
    }
}
