//! Which database an address is for.

use std::path::PathBuf;

use url::Url;

/// The databases that an outbox can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// `postgres://…` or `postgresql://…`
    Postgres,
    /// `mysql://…` or `mariadb://…`
    MySql,
    /// `sqlite:path`
    Sqlite,
}

const WRITE: &str = "write postgres://…, mysql://… or sqlite:path";

const ENCODE: &str = "percent-encode special characters of the user's name and password";

impl Database {
    /// The database of an address. The error never holds more of the address than its scheme.
    pub fn of(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        let database = match scheme {
            "postgres" | "postgresql" => Self::Postgres,
            "mysql" | "mariadb" => Self::MySql,
            "sqlite" if rest.is_empty() || rest == "//" => return Err(format!("it names no file; {WRITE}")),
            "sqlite" => return Ok(Self::Sqlite),
            // Without the slashes it may as well be a user's name before a password.
            _ if rest.starts_with("//") && is_scheme(scheme) => {
                return Err(format!("{scheme}:// is no database that we know; {WRITE}"));
            }
            _ => return Err(format!("it has no scheme; {WRITE}")),
        };
        match Url::parse(url) {
            _ if !rest.starts_with("//") => Err(format!("{scheme}: is not followed by //; {WRITE}")),
            Ok(url) if url.fragment().is_some() => Err(format!("it has a # in it, which ends an address; {ENCODE}")),
            Ok(_) => Ok(database),
            Err(error) => Err(format!("it is not a valid address ({error}); {ENCODE}")),
        }
    }
}

/// Whether an address has no password in it, neither before its host nor among its options.
pub fn is_without_secret(url: &str) -> bool {
    let is_password = |key: &str| key.to_ascii_lowercase().contains("pass");
    Url::parse(url).is_ok_and(|url| url.password().is_none() && !url.query_pairs().any(|(key, _)| is_password(&key)))
}

/// Whether two addresses lead to one database, as far as they tell: a file has many paths, and two schemes another name.
pub fn is_same(one: &str, other: &str) -> bool {
    match (file_of(one), file_of(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => with_usual_scheme(one) == with_usual_scheme(other),
        _ => false,
    }
}

/// The file of an SQLite address, from the root. Links are not followed.
fn file_of(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    Some(std::path::absolute(path).unwrap_or_else(|_| path.into()))
}

fn with_usual_scheme(url: &str) -> (&str, &str) {
    match url.split_once(':').unwrap_or(("", url)) {
        ("postgresql", rest) => ("postgres", rest),
        ("mariadb", rest) => ("mysql", rest),
        written => written,
    }
}

fn is_scheme(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}
