//! The account: neither too much nor too little.

use postrider_core::operate::Finding;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::MySqlStore;
use crate::mysql::error::number;

/// Statements whose plan only those may ask for who may run them, with what they need.
const NEEDED: [(&str, &str); 3] = [
    ("explain select * from {table} limit 0", "select"),
    (
        "explain update {table} set status = 'pending', attempts = 0, next_attempt_at = utc_timestamp(6), locked_by = null, \
         locked_until = null, last_error = null, updated_at = utc_timestamp(6), delivered_at = null where false",
        "update (status, attempts, next_attempt_at, locked_by, locked_until, last_error, updated_at, delivered_at)",
    ),
    ("explain delete from {table} where false", "delete"),
];

/// Whether the account may not do it: to a table, to a column, at all.
pub(super) fn is_denied(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(1142 | 1143 | 1227 | 1044 | 1345))
}

/// Whether the server is read-only, and so does not even tell the plan of a statement that locks or writes.
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    number(error) == Some(1290)
}

pub(super) async fn look(connection: &mut MySqlConnection, store: &MySqlStore) -> Result<Vec<Finding>, sqlx::Error> {
    let account: String = sqlx::query_scalar("select cast(current_user() as char)").fetch_one(&mut *connection).await?;
    let (name, host) = account.rsplit_once('@').unwrap_or((&account, "%"));
    let quoted = format!("`{}`@`{}`", name.replace('`', "``"), host.replace('`', "``"));
    let mut grants = Vec::new();
    for (probe, privilege) in NEEDED {
        match sqlx::raw_sql(AssertSqlSafe(store.text(probe))).fetch_all(&mut *connection).await {
            Err(error) if is_denied(&error) => {
                grants.push(store.text(&format!("grant {privilege} on {{table}} to {quoted}")));
            }
            Err(error) if is_read_only(&error) => {}
            answer => drop(answer?),
        }
    }
    let lacking = match grants.is_empty() {
        true => Finding::fine("privileges", format!("the account {account} may claim and settle")),
        false => Finding::problem(
            "privileges",
            format!("the account {account} lacks {} of the privileges that a relay needs", grants.len()),
            format!("run: {}", grants.join("; ")),
        ),
    };
    Ok(vec![power(connection, &account, store.database().as_deref()).await?, lacking])
}

/// Privileges with which a mistake is a large one.
async fn power(
    connection: &mut MySqlConnection,
    account: &str,
    database: Option<&str>,
) -> Result<Finding, sqlx::Error> {
    const NAME: &str = "role";
    let rows = sqlx::raw_sql("show grants").fetch_all(connection).await?;
    let mut strong = false;
    for row in &rows {
        let line: Vec<u8> = row.try_get_unchecked(0)?;
        strong |= is_strong(&String::from_utf8_lossy(&line), database.unwrap_or_default());
    }
    Ok(match strong {
        true => Finding::warning(
            NAME,
            format!("the account {account} may alter and drop tables"),
            "log in as an account of its own; postrider migrate --print-grants prints what it needs",
        ),
        false => Finding::fine(NAME, format!("the account {account} may neither alter nor drop tables")),
    })
}

/// Whether a line of `show grants` lets somebody change tables themselves, everywhere or in this database. What may be
/// done to others is not our business: a fresh MariaDB lets everybody do anything to `test`.
fn is_strong(line: &str, database: &str) -> bool {
    let Some((privileges, rest)) = line.trim_start_matches("GRANT ").split_once(" ON ") else { return false };
    let strong = |word| matches!(word, "ALL PRIVILEGES" | "ALL" | "ALTER" | "DROP" | "SUPER" | "CREATE");
    privileges.split(", ").any(strong) && is_about(rest, database)
}

/// Whether a grant's object is everything, this database or something in it.
fn is_about(object: &str, database: &str) -> bool {
    if object.starts_with("*.*") {
        return true;
    }
    // Double quotes if `sql_mode` holds ANSI_QUOTES.
    let Some(quote) = object.chars().next().filter(|first| ['`', '"'].contains(first)) else { return false };
    let mut name = String::new();
    let mut rest = object[1..].chars().peekable();
    while let Some(next) = rest.next() {
        if next == quote && rest.next_if_eq(&quote).is_none() {
            break;
        }
        name.push(next);
    }
    // On a whole database its name is a pattern.
    match rest.collect::<String>().starts_with(".*") {
        true => is_like(&name.to_lowercase(), &database.to_lowercase()),
        false => name.eq_ignore_ascii_case(database),
    }
}

/// What `like` says.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut of_pattern = pattern.chars();
    let Some(first) = of_pattern.next() else { return text.is_empty() };
    let after = |text: &str, expected: Option<char>, pattern: &str| {
        let mut of_text = text.chars();
        let next = of_text.next();
        next.is_some() && (expected.is_none() || next == expected) && is_like(pattern, of_text.as_str())
    };
    match first {
        '%' => text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .any(|at| is_like(of_pattern.as_str(), &text[at..])),
        '_' => after(text, None, of_pattern.as_str()),
        '\\' => match of_pattern.next() {
            Some(escaped) => after(text, Some(escaped), of_pattern.as_str()),
            None => after(text, Some(first), ""),
        },
        plain => after(text, Some(plain), of_pattern.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s23_a_grant_that_can_drop_a_table_is_told_from_one_that_cannot() {
        for strong in [
            "GRANT ALL PRIVILEGES ON *.* TO `a`@`%`",
            "GRANT SELECT, DROP ON `shop`.* TO `a`@`%`",
            "GRANT SELECT, DROP ON `shop`.`outbox_messages` TO `a`@`%`",
            "GRANT ALTER ON \"shop\".* TO \"a\"@\"%\"",
            "GRANT CREATE ON `sh%`.* TO PUBLIC",
            "GRANT CREATE ON `s_op`.* TO PUBLIC",
        ] {
            assert!(is_strong(strong, "shop"), "{strong}");
        }
        for weak in [
            "GRANT USAGE ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*1'",
            "GRANT SELECT, UPDATE (status, attempts), DELETE ON `shop`.`outbox_messages` TO `a`@`%`",
            "GRANT CREATE TEMPORARY TABLES ON `shop`.* TO `a`@`%`",
            "GRANT SELECT, INSERT, CREATE, DROP, ALTER ON `test`.* TO PUBLIC",
            "GRANT SELECT, INSERT, CREATE, DROP, ALTER ON `test\\_%`.* TO PUBLIC",
            "GRANT ALL PRIVILEGES ON `s\\_op`.* TO `a`@`%`",
            "GRANT ALL PRIVILEGES ON `shop```.* TO `a`@`%`",
            "GRANT DROP ON `sh%`.`outbox_messages` TO `a`@`%`",
            "GRANT PROXY ON ''@'%' TO 'root'@'localhost' WITH GRANT OPTION",
            "GRANT `manager` TO `a`@`%`",
        ] {
            assert!(!is_strong(weak, "shop"), "{weak}");
        }
        assert!(is_strong("GRANT DROP ON `test\\_%`.* TO PUBLIC", "test_1"));
    }
}
