//! Entering an event in a transaction, whatever driver opened it.
//!
//! A driver says how to run a statement; the rest they share. The row is inserted first, so that whoever else has the event
//! is met at once. Only a delivery with an attempt costs a second statement, which looks whether a newer attempt has been
//! seen; then the row is taken back.

use std::future::Future;
use std::time::Duration;

use sqlx::Transaction;
use uuid::Uuid;

use super::database::Database;
use super::database::sealed::Dialect as _;
use super::statements::{Statement, Statements};
use super::tables::{InboxTables, micros};
use super::{Failed, Kind};
use crate::{Attempt, Delivery, Entry, InboxError};

/// A transaction that a consumer has open: the effect is written in it, and so is the row.
///
/// | users of | pass |
/// |---|---|
/// | sqlx | `&mut sqlx::Transaction<'_, DB>`, on PostgreSQL, MySQL and SQLite |
/// | tokio-postgres, deadpool | `&tokio_postgres::Transaction<'_>` |
/// | SeaORM | `&sea_orm::DatabaseTransaction` |
///
/// A pool is not a transaction, so this does not compile:
///
/// ```compile_fail,E0277
/// # async fn take(tables: postrider_inbox::InboxTables, pool: sqlx::PgPool, delivery: postrider_inbox::Delivery) {
/// let _ = tables.enter(&pool, &delivery).await;
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that an event can be entered in",
    note = "pass the transaction that the effect is written in, by reference; with a pool or a plain connection the event would count as processed apart from it"
)]
pub trait ConsumerTransaction: Send {
    /// Enters an event. Called by [`InboxTables::enter`].
    fn enter(
        self,
        tables: &InboxTables,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<Entry<()>, InboxError>> + Send;

    /// Takes an event back. Called by [`InboxTables::leave`].
    fn leave(self, tables: &InboxTables, delivery: &Delivery) -> impl Future<Output = Result<(), InboxError>> + Send;
}

impl<DB: Database> ConsumerTransaction for &mut Transaction<'_, DB> {
    async fn enter(self, tables: &InboxTables, delivery: &Delivery) -> Result<Entry<()>, InboxError> {
        enter(&mut Sqlx::<DB>(self), tables, delivery).await
    }

    async fn leave(self, tables: &InboxTables, delivery: &Delivery) -> Result<(), InboxError> {
        leave(&mut Sqlx::<DB>(self), tables, delivery).await
    }
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Text(&'a str),
    Id(Uuid),
    Number(i64),
}

/// A row of an answer.
pub type Numbers = (i64, i64);

/// What `enter.sql` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    First,
    AlreadyProcessed,
    InProgress,
    /// Not written; the row that was in the way is to be looked for.
    Refused,
}

/// How a driver runs the statements of a dialect.
pub(crate) trait Driver: Send {
    /// The database.
    type Database: Database;

    /// Runs a statement and answers its rows.
    fn ask(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<Numbers>, Failed>> + Send;
}

/// sqlx's connections, in a transaction or not.
pub(super) struct Sqlx<'a, DB: Database>(pub &'a mut DB::Connection);

impl<DB: Database> Driver for Sqlx<'_, DB> {
    type Database = DB;

    async fn ask(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<Vec<Numbers>, Failed> {
        DB::ask(self.0, statement, values).await
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "a lock was not had in time, and by the server's setting innodb_rollback_on_timeout that undoes the transaction"
)]
struct Undone;

/// Enters an event in a transaction that has more in it.
pub(crate) async fn enter<D: Driver>(
    driver: &mut D,
    tables: &InboxTables,
    delivery: &Delivery,
) -> Result<Entry<()>, InboxError> {
    let entry = enter_for(driver, tables, delivery, tables.keep()).await?;
    if let (Entry::InProgress(_), Some(undone)) = (&entry, &tables.statements::<D::Database>()?.undone)
        && !driver.ask(undone, &[]).await?.is_empty()
    {
        return Err(InboxError::Conflict(Undone.into()));
    }
    Ok(entry)
}

/// Enters an event that is to be kept for such a time, and looks at its attempt.
pub(super) async fn enter_for<D: Driver>(
    driver: &mut D,
    tables: &InboxTables,
    delivery: &Delivery,
    keep: Duration,
) -> Result<Entry<()>, InboxError> {
    let statements = tables.statements::<D::Database>()?;
    match insert(driver, statements, delivery, keep).await? {
        Entered::First => {}
        Entered::AlreadyProcessed | Entered::Refused => return Ok(Entry::AlreadyProcessed),
        Entered::InProgress => return Ok(Entry::InProgress(Duration::ZERO)),
    }
    let Some(this) = delivery.attempt else { return Ok(Entry::First(())) };
    let newer = match driver.ask(&statements.newest, &key(delivery)).await {
        Ok(rows) => match rows.first().map(attempt).filter(|newest| *newest > this) {
            None => return Ok(Entry::First(())),
            Some(seen) => Ok(Entry::Stale { seen }),
        },
        Err(failed) => Err(InboxError::from(failed)),
    };
    // Also after an error, in case the transaction lives on and is committed all the same.
    let left = driver.ask(&statements.leave, &key(delivery)).await;
    let stale = newer?;
    left?;
    Ok(stale)
}

/// Takes back what this transaction has entered.
pub(crate) async fn leave<D: Driver>(
    driver: &mut D,
    tables: &InboxTables,
    delivery: &Delivery,
) -> Result<(), InboxError> {
    driver.ask(&tables.statements::<D::Database>()?.leave, &key(delivery)).await?;
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error(
    "event {event} could not be entered although it is not in the inbox; look for a trigger or another unique index on its table"
)]
struct KeptOut {
    event: Uuid,
    source: Option<Failed>,
}

/// Writes the row. What is not written counts as processed only if the event's own row was in the way.
pub(super) async fn insert<D: Driver>(
    driver: &mut D,
    statements: &Statements,
    delivery: &Delivery,
    keep: Duration,
) -> Result<Entered, InboxError> {
    let [consumer, event] = key(delivery);
    let source = match driver.ask(&statements.enter, &[consumer, event, Value::Number(micros(keep))]).await {
        Ok(rows) => match D::Database::entered(&rows) {
            Entered::Refused => None,
            entered => return Ok(entered),
        },
        Err(failed) if failed.kind == Kind::Duplicate => Some(failed),
        Err(Failed { kind: Kind::Held, .. }) => return Ok(Entered::InProgress),
        Err(failed) => return Err(failed.into()),
    };
    match driver.ask(&statements.confirm, &key(delivery)).await {
        Ok(rows) if rows.is_empty() => Err(InboxError::Failed(KeptOut { event: delivery.event, source }.into())),
        Ok(_) => Ok(Entered::AlreadyProcessed),
        Err(Failed { kind: Kind::Held, .. }) => Ok(Entered::InProgress),
        Err(failed) => Err(failed.into()),
    }
}

/// The parameters that every statement about an event begins with.
pub(super) fn key(delivery: &Delivery) -> [Value<'_>; 2] {
    [Value::Text(delivery.consumer.as_str()), Value::Id(delivery.event)]
}

/// Reads `newest.sql`; a number that is none of ours is as large as can be, so nothing is let in by mistake.
fn attempt((replayed, number): &Numbers) -> Attempt {
    let read = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    Attempt { replayed: read(*replayed), number: read(*number) }
}
