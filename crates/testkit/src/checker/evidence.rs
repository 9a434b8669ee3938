//! What was written down during a run: by producers, by the database, and by the destination.
//!
//! Promise: the same form for every database, so that one [`judge`](super::judge::judge) speaks about all of them. Times
//! are microseconds since 1970, by the clock of the machine that all of them share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use postrider::State;
use uuid::Uuid;

use crate::source::{Dialect, Source};

/// A line of the producer's ledger, committed together with its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The message.
    pub id: Uuid,
    /// Its [`fingerprint`], where the ledger has it.
    pub contents: Option<u64>,
    /// What its order is kept in: the key, if order was asked for.
    pub lane: Option<String>,
    /// Its place in the lane.
    pub place: i64,
    /// Whether the destination refuses it for good.
    pub is_doomed: bool,
}

/// A row of the outbox at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The message.
    pub id: Uuid,
    /// Where it is in its life.
    pub state: State,
    /// Attempts so far.
    pub attempts: i32,
    /// Attempts allowed to this message alone.
    pub max_attempts: Option<i32>,
    /// For how long its lease has been over; negative while it is good, and 0 without one.
    pub overdue_micros: i64,
    /// What the row itself says about its contents, where that can be compared.
    pub contents: Option<u64>,
}

/// One arrival at the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The message.
    pub id: Uuid,
    /// The number of the attempt that brought it.
    pub attempt: i32,
    /// Its [`fingerprint`].
    pub contents: u64,
    /// When the destination had it.
    pub at: i64,
}

/// A change of a row, as a trigger saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The message.
    pub id: Uuid,
    /// When the row was written.
    pub at: i64,
    /// The time that the statement went by.
    pub decided_at: i64,
    /// The state before.
    pub was: State,
    /// The state after; nothing if the row was deleted.
    pub became: Option<State>,
    /// Attempts before.
    pub attempts_were: i32,
    /// Attempts after.
    pub attempts: i32,
    /// The end of the lease before.
    pub locked_until_was: Option<i64>,
    /// The holder before.
    pub locked_by_was: Option<Uuid>,
    /// The holder after.
    pub locked_by: Option<Uuid>,
    /// Whose connection made it.
    pub made_by: String,
}

impl Change {
    /// By how much attempts grew.
    pub fn spent(&self) -> i32 {
        self.attempts - self.attempts_were
    }

    /// Whether somebody took the row.
    pub fn is_claim(&self) -> bool {
        self.became == Some(State::Processing) && self.spent() == 1
    }
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// What the application knows it committed.
    pub ledger: Vec<Entry>,
    /// The outbox.
    pub rows: Vec<Row>,
    /// What the destination got, in its order.
    pub arrivals: Vec<Arrival>,
    /// How rows changed.
    pub changes: Vec<Change>,
    /// How coarse the database's clock is, in microseconds: two times that differ by less may be in either order.
    pub grain: i64,
    /// Whether the destination drops a repeat that comes at once, so that an attempt may be delivered without an arrival of its own.
    pub drops_repeats: bool,
}

/// A number that differs when anything of a message does.
pub fn fingerprint(topic: &str, key: Option<&str>, tenant: Option<Uuid>, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, key, tenant, body).hash(&mut hasher);
    hasher.finish()
}

/// Reads the outbox of a database, and the changes that its trigger wrote down.
pub async fn outbox(source: &Source) -> Result<(Vec<Row>, Vec<Change>)> {
    let dialect = source.dialect();
    let lease = dialect.micros("locked_until");
    let rows = format!(
        "select concat_ws('|', {id}, status, attempts, coalesce(max_attempts, 0), coalesce({now} - {lease}, 0)) \
         from outbox_messages",
        id = text("id"),
        now = dialect.now_micros(),
    );
    let changes = format!(
        "select concat_ws('|', {id}, {at}, {decided}, was, became, attempts_were, attempts, coalesce({until}, 0), \
         {before}, {after}, made_by) from changes",
        id = text("id"),
        at = dialect.micros("at"),
        decided = dialect.micros("decided_at"),
        until = dialect.micros("locked_until_was"),
        before = text("locked_by_was"),
        after = text("locked_by"),
    );
    Ok((read(source, &rows, row).await?, read(source, &changes, change).await?))
}

/// The type is as wide as an id, so that no database pads one.
fn text(id: &str) -> String {
    format!("coalesce(cast({id} as char(36)), '')")
}

/// Reads lines of fields with a bar between them.
pub async fn read<T>(source: &Source, sql: &str, parse: fn(&mut Fields<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let each = |line: &str| {
        found.push(parse(&mut Fields(line.split('|'))).with_context(|| format!("cannot read `{line}`"))?);
        Ok(())
    };
    source.each(sql, each).await?;
    Ok(found)
}

/// The fields of a line, one after the other.
pub struct Fields<'a>(std::str::Split<'a, char>);

impl<'a> Fields<'a> {
    /// The next as text.
    pub fn text(&mut self) -> Result<&'a str> {
        self.0.next().map(str::trim).context("a field is missing")
    }

    /// The next as something else.
    pub fn parse<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(&mut self) -> Result<T> {
        Ok(self.text()?.parse()?)
    }

    fn id(&mut self) -> Result<Option<Uuid>> {
        let text = self.text()?;
        (!text.is_empty()).then(|| Ok(text.parse()?)).transpose()
    }

    fn state(&mut self) -> Result<State> {
        let word = self.text()?;
        State::parse(word).ok_or_else(|| anyhow!("{word} is no state"))
    }

    fn micros(&mut self) -> Result<Option<i64>> {
        Ok(Some(self.parse()?).filter(|micros| *micros != 0))
    }
}

fn row(fields: &mut Fields<'_>) -> Result<Row> {
    Ok(Row {
        id: fields.parse()?,
        state: fields.state()?,
        attempts: fields.parse()?,
        max_attempts: Some(fields.parse()?).filter(|attempts| *attempts != 0),
        overdue_micros: fields.parse()?,
        contents: None,
    })
}

fn change(fields: &mut Fields<'_>) -> Result<Change> {
    Ok(Change {
        id: fields.parse()?,
        at: fields.parse()?,
        decided_at: fields.parse()?,
        was: fields.state()?,
        became: State::parse(fields.text()?),
        attempts_were: fields.parse()?,
        attempts: fields.parse()?,
        locked_until_was: fields.micros()?,
        locked_by_was: fields.id()?,
        locked_by: fields.id()?,
        made_by: fields.text()?.to_owned(),
    })
}

/// The trigger that writes changes down, for each database.
pub(super) fn watch(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => include_str!("changes_postgres.sql"),
        Dialect::MySql => include_str!("changes_mysql.sql"),
        Dialect::Sqlite => include_str!("changes_sqlite.sql"),
    }
}
