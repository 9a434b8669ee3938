//! One table, three languages: PostgreSQL with all of them, MySQL with TypeScript, SQLite with Python.

use std::time::Duration;

use postrider_inbox::{Inbox, MySqlInbox, PostgresInbox, SqliteInbox};
use serde_json::json;
use testkit::{MariaDb, Postgres, eventually};
use uuid::Uuid;

use crate::party::{Foreign, Party, Rust};

const SOON: Duration = Duration::from_secs(30);

/// An inbox on a database, and how often handlers have had their effect there.
struct Scene<DB: sqlx::Database, I: Inbox> {
    pool: sqlx::Pool<DB>,
    rust: Rust<I>,
}
