//! What a relay needs of the database that it was given, checked before anything else is done with it.

use postrider_core::store::{StoreError, StoreErrorKind};
use sqlx::{Row, SqliteConnection};

use super::error::{code, for_relay};
use crate::names::Names;

/// The first version with `returning` and materialised common tables.
const OLDEST_VERSION: (u32, u32) = (3, 35);
/// SQLite's answer to a statement with a function that it does not know.
const UNKNOWN: i32 = 1;
const NORMAL: i64 = 1;
const FULL: i64 = 2;

/// How the database is set up.
pub(super) struct Settings {
    pub version: String,
    has_json: bool,
    pub journal_mode: String,
    pub synchronous: i64,
}

/// Refuses a database on which promises could not be kept.
pub(super) async fn check(connection: &mut SqliteConnection, names: &Names, relaxed: bool) -> Result<(), StoreError> {
    names_are_plain(names)?;
    let settings = read(connection).await.map_err(|error| for_relay("check the settings", error))?;
    settings.check(relaxed)
}

/// Refuses names that SQLite cannot have.
pub(super) fn names_are_plain(names: &Names) -> Result<(), StoreError> {
    match names.schema() {
        None => Ok(()),
        Some(schema) => Err(refused(format!(
            "the outbox's names have the schema {schema:?}, and SQLite has no schemas; use Names::unqualified with a prefix and table of its own"
        ))),
    }
}

pub(super) async fn read(connection: &mut SqliteConnection) -> Result<Settings, sqlx::Error> {
    let version = sqlx::query("select sqlite_version()").fetch_one(&mut *connection).await?.try_get(0)?;
    let has_json = match sqlx::query("select json_valid('1')").fetch_one(&mut *connection).await {
        Err(error) if code(&error) == Some(UNKNOWN) => false,
        answer => answer.map(|_| true)?,
    };
    let journal_mode = sqlx::query("pragma journal_mode").fetch_one(&mut *connection).await?.try_get(0)?;
    let synchronous = sqlx::query("pragma synchronous").fetch_one(&mut *connection).await?.try_get(0)?;
    Ok(Settings { version, has_json, journal_mode, synchronous })
}

impl Settings {
    pub fn check(&self, relaxed: bool) -> Result<(), StoreError> {
        let mut parts = self.version.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
        if (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) < OLDEST_VERSION {
            return Err(refused(format!(
                "SQLite is version {}, and the outbox needs 3.35 or newer; link a newer library or sqlx's bundled one",
                self.version
            )));
        }
        if !self.has_json {
            return Err(refused(format!(
                "SQLite {} was built without its JSON functions, and the outbox needs them; link a library built with them (the default from 3.38, SQLITE_ENABLE_JSON1 before) or sqlx's bundled one",
                self.version
            )));
        }
        if !self.journal_mode.eq_ignore_ascii_case("wal") {
            return Err(refused(format!(
                "the database's journal mode is {:?}, and relays and producers would block each other; open a file with SqliteStore::open, or with journal_mode(SqliteJournalMode::Wal), in a directory on a local disk; a database in memory cannot have an outbox",
                self.journal_mode
            )));
        }
        match self.synchronous {
            FULL.. => Ok(()),
            NORMAL if relaxed => Ok(()),
            NORMAL => Err(refused(
                "the database's synchronous setting is NORMAL, and a power failure would lose the last commits, so messages that were delivered are sent again and changes that were reported to others are gone; open it with synchronous(SqliteSynchronous::Full), or accept that with relaxed_durability(true)".into(),
            )),
            _ => Err(refused(
                "the database's synchronous setting is OFF, and a power failure could destroy the file; open it with synchronous(SqliteSynchronous::Full)".into(),
            )),
        }
    }
}

fn refused(text: String) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(version: &str, journal_mode: &str, synchronous: i64) -> Settings {
        Settings { version: version.into(), has_json: true, journal_mode: journal_mode.into(), synchronous }
    }

    #[test]
    fn r47_only_power_safe_settings_pass() {
        assert!(settings("3.35.0", "wal", 2).check(false).is_ok());
        assert!(settings("4.0.0", "WAL", 3).check(false).is_ok());
        assert!(settings("3.35.0", "wal", 1).check(true).is_ok());
        for (bad, word) in [
            (settings("3.34.1", "wal", 2), "3.34.1"),
            (settings("3.50.0", "delete", 2), "journal_mode"),
            (settings("3.50.0", "memory", 2), "memory"),
            (settings("3.50.0", "wal", 1), "relaxed_durability"),
            (settings("3.50.0", "wal", 0), "OFF"),
        ] {
            let error = bad.check(false).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
        let without_json = Settings { has_json: false, ..settings("3.37.0", "wal", 2) };
        assert!(without_json.check(false).expect_err("no JSON").to_string().contains("JSON"));
        assert!(settings("3.50.0", "wal", 0).check(true).is_err(), "OFF may destroy the file");
    }
}
