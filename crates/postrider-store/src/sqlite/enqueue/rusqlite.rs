//! `enqueue` for users of rusqlite, who are synchronous: these calls need no runtime and block like rusqlite's own.
//!
//! A rusqlite transaction may not leave its thread, so it cannot be passed to the asynchronous `enqueue`.

use postrider_core::message::{Enqueued, Message, NewRow};
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Savepoint, ToSql, Transaction, params_from_iter};
use uuid::Uuid;

use super::{Plan, Value, keys, positions, tell_neighbours};
use crate::enqueue::rounds::Rounds;
use crate::enqueue::{EnqueueError, Outbox};
use crate::sql::Sql;
use crate::sqlite::error::for_producer;

/// A transaction of rusqlite that a caller has open: `Transaction` or `Savepoint`.
pub trait RusqliteTransaction: sealed::OnConnection {}

impl RusqliteTransaction for Transaction<'_> {}
impl RusqliteTransaction for Savepoint<'_> {}

mod sealed {
    pub trait OnConnection {
        fn connection(&self) -> &rusqlite::Connection;
    }
}

impl sealed::OnConnection for Transaction<'_> {
    fn connection(&self) -> &Connection {
        self
    }
}

impl sealed::OnConnection for Savepoint<'_> {
    fn connection(&self) -> &Connection {
        self
    }
}

impl Outbox {
    /// [`enqueue`](Self::enqueue) in a transaction of rusqlite. Begin it with the write lock
    /// (`TransactionBehavior::Immediate`), and set a busy time-out on the connection.
    ///
    /// ```
    /// # use postrider_store::{EnqueueError, Outbox};
    /// # fn place(outbox: Outbox, connection: &mut rusqlite::Connection, message: postrider_core::Message) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    /// // the change itself
    /// outbox.enqueue_blocking(&transaction, message)?;
    /// transaction.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A transaction that SQLite has ended by itself, because the disk is full or a constraint says
    /// `on conflict rollback`, is refused with [`EnqueueError::NotInTransaction`].
    ///
    /// A plain connection is not a transaction, so this does not compile:
    ///
    /// ```compile_fail,E0277
    /// # use postrider_store::{EnqueueError, Outbox};
    /// # fn place(outbox: Outbox, connection: rusqlite::Connection, message: postrider_core::Message) -> Result<(), EnqueueError> {
    /// outbox.enqueue_blocking(&connection, message)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueue_blocking(
        &self,
        transaction: &impl RusqliteTransaction,
        message: impl Into<Message>,
    ) -> Result<Enqueued, EnqueueError> {
        let answers = self.enqueue_many_blocking(transaction, [message])?;
        answers.into_iter().next().ok_or(EnqueueError::KeyContended)
    }

    /// [`enqueue_many`](Self::enqueue_many) in a transaction of rusqlite.
    pub fn enqueue_many_blocking<M: Into<Message>>(
        &self,
        transaction: &impl RusqliteTransaction,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let rows = self.check_all(messages)?;
        // SQLite may have ended the transaction by itself, after an error that the caller passed over.
        if transaction.connection().is_autocommit() {
            return Err(EnqueueError::NotInTransaction);
        }
        let answers = insert(transaction.connection(), Plan::of(self), &rows)?;
        if !answers.is_empty() {
            tell_neighbours(self);
        }
        Ok(answers)
    }
}

fn insert(connection: &Connection, plan: Plan<'_>, rows: &[NewRow]) -> Result<Vec<Enqueued>, EnqueueError> {
    let mut rounds = Rounds::new(rows);
    while let Some(open) = rounds.open() {
        let mut written = Vec::with_capacity(open.len());
        for (sql, portion) in plan.insert(&open).split(&open) {
            written.extend(write(connection, sql, plan.values(portion)).map_err(failed)?);
        }
        if let Some(open) = rounds.written(written) {
            rounds.found(positions(find(connection, &plan.statements.enqueue_find, keys(&open)).map_err(failed)?));
        }
    }
    rounds.answers()
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(rusqlite::types::Value::Null),
            Self::Integer(number) => ToSqlOutput::from(*number),
            Self::Text(text) => ToSqlOutput::from(*text),
            Self::Owned(text) => ToSqlOutput::from(text.as_str()),
            Self::Bytes(bytes) => ToSqlOutput::from(*bytes),
            Self::Id(id) => ToSqlOutput::from(id.hyphenated().to_string()),
        })
    }
}

fn write(connection: &Connection, sql: &Sql, values: Vec<Value<'_>>) -> rusqlite::Result<Vec<Uuid>> {
    let mut statement = connection.prepare_cached(sql)?;
    let ids = statement.query_map(params_from_iter(values), |row| id(row, 0))?;
    ids.collect()
}

fn find(connection: &Connection, sql: &Sql, keys: String) -> rusqlite::Result<Vec<(i64, Uuid)>> {
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map([keys], |row| Ok((row.get(0)?, id(row, 1)?)))?;
    found.collect()
}

fn id(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Uuid> {
    let text: String = row.get(at)?;
    let unreadable =
        |error| rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, Box::new(error));
    Uuid::parse_str(&text).map_err(unreadable)
}

fn failed(error: rusqlite::Error) -> EnqueueError {
    for_producer(error.sqlite_error().map(|error| error.extended_code), error)
}
