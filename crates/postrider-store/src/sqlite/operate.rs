//! The operator's verbs on SQLite. A change and its line in the audit table are one transaction.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::operate::{Action, AuditEntry, Change, Filter, Operator, Position, Record, Tally};
use postrider_core::store::{Finished, Purge, Scope, Store, StoreError};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::clock::ago;
use super::error::for_relay;
use super::statements::Step;
use super::store::{SqliteStore, bind_purge, only};
use super::types::{Bound, json, key};
use crate::claimed::plain_uuid;
use crate::clock;
use crate::operate::{LATELY, Note, between, check, cut, ids_text, in_order, read_state, row_readers, within};
use crate::sql::Sql;

impl SqliteStore {
    /// Picks dead messages, changes them and notes it, with the write lock in hand. `bind` adds what the change wants
    /// after the rows' numbers.
    async fn change(
        &self,
        verb: &'static str,
        step: &Step,
        change: &Change,
        note: Note,
        bind: impl Fn(&mut Bound, i64) + Send + Sync,
    ) -> Result<Vec<Uuid>, StoreError> {
        let failed = |error| for_relay(verb, error);
        let statements = &self.runner.statements;
        let mut writing = self.runner.begin(verb).await?;
        let mut bound = asked(&change.filter, None);
        bound.add(i64::from(cut(change.limit)));
        let picked = writing.run(&statements.dead_pick, &mut bound).await.map_err(failed)?;
        if picked.is_empty() {
            writing.commit().await.map_err(failed)?;
            return Ok(Vec::new());
        }
        let numbers: Vec<i64> = picked.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(failed)?;
        let ids: Vec<Uuid> = picked.iter().map(|row| id(row, 1)).collect::<Result<_, _>>().map_err(failed)?;
        let now = writing.now;
        let mut bound = Bound::default();
        bound.add(json(numbers));
        bind(&mut bound, now);
        writing.run(step, &mut bound).await.map_err(failed)?;
        let mut line = noted(&note, ids.len(), &ids, now);
        writing.finish(&statements.note, &mut line).await.map_err(failed)?;
        Ok(ids)
    }

    async fn count<A>(&self, verb: &'static str, sql: &Sql, arguments: A) -> Result<u64, StoreError>
    where
        A: Fn(&mut Bound, i64) + Send + Sync,
    {
        let rows = self.runner.read(verb, sql, arguments).await?;
        number(only(verb, &rows)?, 0).map_err(|error| for_relay(verb, error))
    }
}

#[async_trait]
impl Operator for SqliteStore {
    async fn overview(&self, scope: &Scope, delivered: bool) -> Result<Vec<Tally>, StoreError> {
        let statements = &self.runner.statements;
        let now = self.runner.clock.now_micros();
        let bind = |bound: &mut Bound, _: i64| {
            bound.scope(scope).add(now).add(ago(now, LATELY));
        };
        let mut rows = self.runner.read("overview", &statements.overview, bind).await?;
        if delivered {
            rows.extend(self.runner.read("overview", &statements.overview_delivered, bind).await?);
        }
        let tallies = rows.iter().map(|row| tally(row, now)).collect::<Result<_, _>>();
        Ok(in_order(tallies.map_err(|error| for_relay("overview", error))?))
    }

    async fn dead(&self, filter: &Filter, after: Option<Position>, limit: u32) -> Result<Vec<Record>, StoreError> {
        check(filter)?;
        let bind = |bound: &mut Bound, _: i64| {
            *bound = asked(filter, after);
            bound.add(after.map(|position| within(position.updated_at_micros)));
            bound.add(after.map(|position| position.id.hyphenated())).add(i64::from(cut(limit)));
        };
        let rows = self.runner.read("dead", &self.runner.statements.dead, bind).await?;
        rows.iter().map(|row| record(row).map_err(|error| for_relay("dead", error))).collect()
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64, StoreError> {
        check(filter)?;
        let bind = |bound: &mut Bound, _: i64| *bound = asked(filter, None);
        self.count("count_dead", &self.runner.statements.count_dead, bind).await
    }

    async fn message(&self, id: Uuid) -> Result<Option<Record>, StoreError> {
        let bind = |bound: &mut Bound, _: i64| {
            bound.id(id);
        };
        let rows = self.runner.read("message", &self.runner.statements.message, bind).await?;
        rows.first().map(|row| with_payload(row).map_err(|error| for_relay("message", error))).transpose()
    }

    async fn replay(&self, change: &Change) -> Result<Vec<Uuid>, StoreError> {
        let note = Note::of_change(Action::Replay, change)?;
        let bind = |bound: &mut Bound, now: i64| {
            bound.add(now);
        };
        let replayed = self.change("replay", &self.runner.statements.replay, change, note, bind).await?;
        if !replayed.is_empty() {
            self.ring(&change.filter.scope).await?;
        }
        Ok(replayed)
    }

    async fn discard(&self, change: &Change) -> Result<Vec<Uuid>, StoreError> {
        let note = Note::of_change(Action::Discard, change)?;
        self.change("discard", &self.runner.statements.discard, change, note, |_, _| {}).await
    }

    async fn purge_as(&self, who: &str, purge: &Purge) -> Result<u64, StoreError> {
        let note = Note::of_purge(who, purge)?;
        let Some(step) = self.purge_step(purge).await? else { return Ok(0) };
        let failed = |error| for_relay("purge", error);
        let mut writing = self.runner.begin("purge").await?;
        let (mut bound, now) = (Bound::default(), writing.now);
        bind_purge(&mut bound, purge, now);
        let deleted = writing.run(step, &mut bound).await.map_err(failed)?.len();
        if deleted == 0 {
            writing.commit().await.map_err(failed)?;
            return Ok(0);
        }
        let mut line = noted(&note, deleted, &[], now);
        writing.finish(&self.runner.statements.note, &mut line).await.map_err(failed)?;
        Ok(deleted as u64)
    }

    async fn count_purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        self.runner.layout.check_purge(purge)?;
        let sql = match purge.finished {
            Finished::Delivered => &self.runner.statements.count_purge_delivered,
            Finished::Dead => &self.runner.statements.count_purge_dead,
        };
        let bind = |bound: &mut Bound, now: i64| {
            bound.scope(&purge.scope).add(ago(now, purge.older_than));
        };
        self.count("count_purge", sql, bind).await
    }

    async fn audit_before(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let bind = |bound: &mut Bound, _: i64| {
            bound.add(before.unwrap_or(i64::MAX)).add(i64::from(cut(limit)));
        };
        let rows = self.runner.read("audit", &self.runner.statements.audit, bind).await?;
        rows.iter().map(|row| entry(row).map_err(|error| for_relay("audit", error))).collect()
    }
}

/// The parameters of a filter, as the fragment `{asked}` wants them.
fn asked(filter: &Filter, after: Option<Position>) -> Bound {
    let (since, until) = between(filter, after);
    let ids = filter.ids.as_ref().map(|ids| json(ids.iter().map(|id| id.hyphenated().to_string())));
    let mut bound = Bound::default();
    bound.scope(&filter.scope).add(filter.topic.clone()).add(filter.key.clone()).add(ids);
    bound.add(since).add(until).add(filter.error.clone());
    bound
}

/// The parameters of `note.sql`.
fn noted(note: &Note, messages: usize, ids: &[Uuid], now: i64) -> Bound {
    let messages = i64::try_from(messages).unwrap_or(i64::MAX);
    let mut bound = Bound::default();
    bound.add(now).add(note.who.clone()).add(note.action.as_str()).add(note.asked.clone());
    bound.add(messages).add(ids_text(ids));
    bound
}

fn tally(row: &SqliteRow, now: i64) -> Result<Tally, sqlx::Error> {
    let oldest = time_or_null(row, 6)?;
    Ok(Tally {
        namespace: text(row, 0)?,
        topic: text(row, 1)?,
        state: read_state(row.try_get(2)?)?,
        messages: number(row, 3)?,
        last_minute: number(row, 4)?,
        due: number(row, 5)?,
        oldest: oldest.map_or(Duration::ZERO, |oldest| clock::between(oldest, now)),
    })
}

row_readers!(SqliteRow {
    id: id,
    id_or_null: id_or_null,
    text: text,
    key: key,
    time: time,
    time_or_null: time_or_null
});

/// An id; the nil UUID for a row whose id is none, and which says so in its error.
fn id(row: &SqliteRow, at: usize) -> Result<Uuid, sqlx::Error> {
    id_or_null(row, at).map(Option::unwrap_or_default)
}

fn id_or_null(row: &SqliteRow, at: usize) -> Result<Option<Uuid>, sqlx::Error> {
    Ok(key(row, at)?.and_then(|text| plain_uuid(&text)))
}

fn text(row: &SqliteRow, at: usize) -> Result<String, sqlx::Error> {
    Ok(key(row, at)?.unwrap_or_default())
}

/// A time; what is none is when time begins.
fn time(row: &SqliteRow, at: usize) -> Result<i64, sqlx::Error> {
    time_or_null(row, at).map(Option::unwrap_or_default)
}

/// A time that may be null. A column of integers holds whatever was written to it.
fn time_or_null(row: &SqliteRow, at: usize) -> Result<Option<i64>, sqlx::Error> {
    match row.try_get(at) {
        Err(sqlx::Error::ColumnDecode { .. }) => Ok(None),
        time => time,
    }
}
