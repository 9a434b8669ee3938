//! The role: neither too much nor too little, and what row security does to it.

use postrider_core::operate::Finding;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use crate::postgres::row_security::Hidden;

/// Findings about the role, and whether it may look at the outbox at all. Nothing is said where there is no table.
pub(super) async fn look(store: &PostgresStore) -> Result<(Vec<Finding>, bool), sqlx::Error> {
    let sql = store.text(include_str!("../../../sql/postgres/examine_role.sql"));
    let prefix = store.names.prefix();
    let functions = vec![format!("{prefix}uuid_v7"), format!("{prefix}enqueue")];
    let given = store.place()?.add(format!("{prefix}migrations"))?.add(functions)?;
    let rows = store.ask(sql, given).await?;
    let Some(row) = rows.first() else { return Ok((Vec::new(), true)) };
    let mut findings = vec![power(row)?];
    let (lacking, may_look) = lacking(store, row)?;
    findings.push(lacking);
    let hidden = store.blindness().await?;
    findings.extend(row_security(store, row, hidden.as_ref())?);
    Ok((findings, may_look))
}

fn power(row: &PgRow) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "role";
    let role: String = row.try_get("role")?;
    let grants = "log in as a role of its own; postrider migrate --print-grants prints what it needs";
    Ok(if row.try_get("superuser")? {
        Finding::warning(
            NAME,
            format!("the role {role} is a superuser: a mistake may change anything on the server"),
            grants,
        )
    } else if row.try_get("owner")? {
        Finding::warning(NAME, format!("the role {role} owns the table, so it may alter and drop it"), grants)
    } else {
        Finding::fine(NAME, format!("the role {role} is neither a superuser nor the table's owner"))
    })
}

fn lacking(store: &PostgresStore, row: &PgRow) -> Result<(Finding, bool), sqlx::Error> {
    const NAME: &str = "privileges";
    let role: String = row.try_get("role")?;
    let mut grants = Vec::new();
    for (allowed, grant) in [
        ("uses_schema", "usage on schema {schema}"),
        ("selects", "select on {table}"),
        (
            "updates",
            "update (status, attempts, next_attempt_at, locked_by, locked_until, last_error, updated_at, delivered_at) on {table}",
        ),
        ("deletes", "delete on {table}"),
        ("reads_versions", "select on {migrations}"),
    ] {
        if !row.try_get::<bool, _>(allowed)? {
            grants.push(format!("grant {} to {role}", store.text(grant)));
        }
    }
    let may_look = row.try_get("uses_schema")? && row.try_get("reads_versions")?;
    let inserts: bool = row.try_get("inserts")?;
    if inserts && !row.try_get::<bool, _>("executes")? {
        let functions = "execute on function {uuid_v7}, {enqueue}";
        grants.push(format!("grant {} to {role}", store.text(functions)));
    }
    let enqueues = if inserts { "may" } else { "may not" };
    let finding = match grants.is_empty() {
        true => Finding::fine(NAME, format!("the role {role} may claim and settle, and {enqueues} enqueue")),
        false => Finding::problem(
            NAME,
            format!("the role {role} lacks {} of the privileges that a relay needs", grants.len()),
            format!("run: {}", grants.join("; ")),
        ),
    };
    Ok((finding, may_look))
}

fn row_security(store: &PostgresStore, row: &PgRow, hidden: Option<&Hidden>) -> Result<Vec<Finding>, sqlx::Error> {
    const NAME: &str = "row-security";
    let (role, policies): (String, i64) = (row.try_get("role")?, row.try_get("policies")?);
    let (superuser, bypasses): (bool, bool) = (row.try_get("superuser")?, row.try_get("bypasses")?);
    let (secured, forced): (bool, bool) = (row.try_get("secured")?, row.try_get("forced")?);
    if !secured {
        return Ok(vec![match policies {
            0 => Finding::fine(NAME, "the table has no row security"),
            _ => Finding::problem(
                NAME,
                format!(
                    "the table has {policies} policies, but row security is not enabled, so that every role sees every tenant"
                ),
                store.text(
                    "run: alter table {table} enable row level security; alter table {table} force row level security",
                ),
            ),
        }]);
    }
    let mut findings = Vec::new();
    if !forced {
        let what = "row security is enabled but not forced, so that the table's owner sees every tenant";
        findings.push(Finding::warning(NAME, what, store.text("run: alter table {table} force row level security")));
    }
    if superuser || bypasses {
        let why = if superuser { "is a superuser" } else { "has BYPASSRLS" };
        findings.push(Finding::warning(
            NAME,
            format!("the role {role} {why} and so passes row security by, on every table"),
            "let the relay log in as a role of its own, with a policy for it; postrider migrate --print-grants prints what it needs",
        ));
    } else if let Some(hidden) = hidden {
        findings.push(Finding::problem(
            NAME,
            format!(
                "row security hides rows from the role {role}: {}, so it delivers nothing or not all",
                hidden.why()
            ),
            store.text(&format!("{}run: {}", hidden.before_mending(), hidden.mend())),
        ));
    }
    for view in row.try_get::<Vec<String>, _>("views")? {
        findings.push(Finding::warning(
            NAME,
            format!("the view {view} reads the table with the rights of its owner, past row security"),
            format!("run: alter view {view} set (security_invoker = true)"),
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::fine(NAME, format!("row security is forced, and a policy lets the role {role} work")));
    }
    Ok(findings)
}
