//! From a URL to a store.

use std::time::Duration;

use postrider_core::store::{StoreError, StoreErrorKind};
use url::Url;

use super::AnyStore;
use crate::layout::Layout;

/// The schemes that are known, for an error.
const KNOWN: &str = "postgres://, postgresql://, mysql://, mariadb:// and sqlite:";

/// What is forgotten most often.
const ENCODED: &str = "with special characters of user names and passwords (such as @ / # ?) percent-encoded";

/// How an outbox is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// What the outbox's table looks like, and its names in the database.
    pub layout: Layout,
    /// The most connections at the same time. A relay keeps up to four of them.
    pub connections: u32,
    /// What PostgreSQL calls the connections.
    pub application_name: String,
    /// A pooler in transaction mode (PgBouncer) is between us and PostgreSQL.
    pub behind_pooler: bool,
    /// Make the SQLite file if it is missing.
    pub create: bool,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
}

impl Default for Connect {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            connections: 10,
            application_name: "postrider".into(),
            behind_pooler: false,
            create: false,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// A URL that cannot be used. The text never holds a part of it: what stands before the first colon may be a user.
fn refused(text: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, text)
}

pub(super) async fn open(url: &str, options: &Connect) -> Result<AnyStore, StoreError> {
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => postgres(url, options),
        Some(("mysql" | "mariadb", _)) => mysql(url, options),
        Some(("sqlite", path)) => sqlite(path, options).await,
        _ => Err(refused(format!("the database's URL begins with no scheme that Postrider knows; known are {KNOWN}"))),
    }
}

/// Reads a URL and refuses parameters that the driver would ignore, because it writes them to the log with their values.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
fn read(url: &str, example: &str, parameters: &[&str]) -> Result<Url, StoreError> {
    let url = Url::parse(url).map_err(|error| {
        refused(format!("the database's URL cannot be read: {error}; write it like {example}, {ENCODED}"))
    })?;
    if url.fragment().is_some() {
        return Err(refused(format!(
            "the database's URL has a # in it, which ends it; write it like {example}, {ENCODED}"
        )));
    }
    let known =
        |key: &str| parameters.contains(&key) || (parameters.contains(&"options") && key.starts_with("options["));
    match url.query_pairs().all(|(key, _)| known(&key)) {
        true => Ok(url),
        false => Err(refused(format!(
            "the database's URL has a parameter that is not known; known are {}; {ENCODED}",
            parameters.join(", ")
        ))),
    }
}

/// The driver's own error may quote a value, so it is left out.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
fn bad_value(example: &str) -> StoreError {
    refused(format!(
        "a part of the database's URL has a value that is not understood; write it like {example}, and check sslmode, port and the percent-encoding"
    ))
}

#[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
fn left_out(database: &str, feature: &str) -> StoreError {
    refused(format!("this program was built without {database}; build it with the feature `{feature}`"))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, options: &Connect) -> Result<AnyStore, StoreError> {
    use sqlx::ConnectOptions;
    use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

    const EXAMPLE: &str = "postgres://user:password@host:5432/database?sslmode=verify-full";
    #[rustfmt::skip]
    const PARAMETERS: [&str; 18] = [
        "sslmode", "ssl-mode", "sslrootcert", "ssl-root-cert", "ssl-ca", "sslcert", "ssl-cert", "sslkey", "ssl-key",
        "statement-cache-capacity", "host", "hostaddr", "port", "dbname", "user", "password", "application_name",
        "options",
    ];
    let url = read(url, EXAMPLE, &PARAMETERS)?;
    let mut server = PgConnectOptions::from_url(&url).map_err(|_| bad_value(EXAMPLE))?;
    // A pooler refuses a start-up parameter that it does not know. The driver sends this one for floating-point numbers as
    // text, which no statement of ours reads.
    server = server.application_name(&options.application_name).extra_float_digits(None);
    if options.behind_pooler {
        server = server.statement_cache_capacity(0);
    }
    let pool = PgPoolOptions::new().max_connections(options.connections).acquire_timeout(options.connect_timeout);
    let store = crate::postgres::PostgresStore::with_layout(pool.connect_lazy_with(server), options.layout.clone());
    let store = store.map_err(|error| refused(error.to_string()))?;
    Ok(AnyStore::Postgres(store.behind_pooler(options.behind_pooler)))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_url: &str, _options: &Connect) -> Result<AnyStore, StoreError> {
    Err(left_out("PostgreSQL", "postgres"))
}

#[cfg(feature = "mysql")]
fn mysql(url: &str, options: &Connect) -> Result<AnyStore, StoreError> {
    use sqlx::ConnectOptions;
    use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

    const EXAMPLE: &str = "mysql://user:password@host:3306/database?ssl-mode=verify_identity";
    #[rustfmt::skip]
    const PARAMETERS: [&str; 14] = [
        "sslmode", "ssl-mode", "sslca", "ssl-ca", "charset", "collation", "sslcert", "ssl-cert", "sslkey", "ssl-key",
        "statement-cache-capacity", "socket", "timezone", "time-zone",
    ];
    let url = read(url, EXAMPLE, &PARAMETERS)?;
    let server = MySqlConnectOptions::from_url(&url).map_err(|_| bad_value(EXAMPLE))?;
    let pool = MySqlPoolOptions::new().max_connections(options.connections).acquire_timeout(options.connect_timeout);
    let store = crate::mysql::MySqlStore::with_layout(pool.connect_lazy_with(server), options.layout.clone());
    Ok(AnyStore::MySql(store.map_err(|error| refused(error.to_string()))?))
}

#[cfg(not(feature = "mysql"))]
fn mysql(_url: &str, _options: &Connect) -> Result<AnyStore, StoreError> {
    Err(left_out("MySQL", "mysql"))
}

/// `sqlite:path`, `sqlite://path` and `sqlite:///path` from the root. A path is taken as it is, without parameters.
#[cfg(feature = "sqlite")]
async fn sqlite(path: &str, options: &Connect) -> Result<AnyStore, StoreError> {
    use sqlx::sqlite::SqliteConnectOptions;

    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.contains('?') || path == ":memory:" {
        return Err(refused(
            "the URL names no file for SQLite; write it like sqlite:shop.db or sqlite:///var/lib/shop/shop.db, without parameters",
        ));
    }
    if !options.create && !std::path::Path::new(path).exists() {
        return Err(super::ping::file_is_missing());
    }
    let file = SqliteConnectOptions::new().filename(path).create_if_missing(options.create);
    let store = crate::sqlite::SqliteStore::open_layout_as(file, options.layout.clone(), options.connections).await?;
    Ok(AnyStore::Sqlite(store))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_path: &str, _options: &Connect) -> Result<AnyStore, StoreError> {
    Err(left_out("SQLite", "sqlite"))
}
