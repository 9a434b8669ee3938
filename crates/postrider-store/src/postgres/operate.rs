//! The operator's verbs on PostgreSQL. A change and its line in the audit table are one statement.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::operate::{Action, AuditEntry, Change, Filter, Operator, Position, Record, Tally};
use postrider_core::store::{Finished, Purge, Scope, Store, StoreError};
use sqlx::Row;
use sqlx::postgres::{PgArguments, PgRow};
use uuid::Uuid;

use super::error::for_relay;
use super::store::{Bound, PostgresStore, only, scoped};
use super::types::Micros;
use crate::clock::micros;
use crate::operate::{Note, between, check, cut, in_order, read_state, row_readers, within};
use crate::sql::Sql;

impl PostgresStore {
    async fn change(
        &self,
        verb: &'static str,
        sql: &Sql,
        change: &Change,
        note: Note,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.refuse_parts().await?;
        let arguments = asked(&change.filter, None, |bound| {
            bound.add(i64::from(cut(change.limit)));
            add(bound, &note);
        });
        let rows = self.runner.fetch(verb, sql, arguments).await?;
        rows.iter().map(|row| row.try_get(0).map_err(|error| for_relay(verb, error))).collect()
    }

    async fn count<A>(&self, verb: &'static str, sql: &Sql, arguments: A) -> Result<u64, StoreError>
    where
        A: Fn() -> Result<PgArguments, sqlx::Error> + Send + Sync,
    {
        let rows = self.runner.fetch(verb, sql, arguments).await?;
        number(only(verb, &rows)?, 0).map_err(|error| for_relay(verb, error))
    }
}

#[async_trait]
impl Operator for PostgresStore {
    async fn overview(&self, scope: &Scope, delivered: bool) -> Result<Vec<Tally>, StoreError> {
        let mut rows = self.runner.fetch("overview", &self.statements.overview, scoped(scope, |_| {})).await?;
        if delivered {
            rows.extend(
                self.runner.fetch("overview", &self.statements.overview_delivered, scoped(scope, |_| {})).await?,
            );
        }
        let tallies = rows.iter().map(tally).collect::<Result<_, _>>().map_err(|error| for_relay("overview", error))?;
        Ok(in_order(tallies))
    }

    async fn dead(&self, filter: &Filter, after: Option<Position>, limit: u32) -> Result<Vec<Record>, StoreError> {
        check(filter)?;
        let arguments = asked(filter, after, |bound| {
            bound.add(after.map(|position| Micros(within(position.updated_at_micros))));
            bound.add(after.map(|position| position.id)).add(i64::from(cut(limit)));
        });
        let rows = self.runner.fetch("dead", &self.statements.dead, arguments).await?;
        rows.iter().map(|row| record(row).map_err(|error| for_relay("dead", error))).collect()
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64, StoreError> {
        check(filter)?;
        self.count("count_dead", &self.statements.count_dead, asked(filter, None, |_| {})).await
    }

    async fn message(&self, id: Uuid) -> Result<Option<Record>, StoreError> {
        let arguments = || {
            let mut bound = Bound::default();
            bound.add(id);
            bound.finish()
        };
        let rows = self.runner.fetch("message", &self.statements.message, arguments).await?;
        rows.first().map(|row| with_payload(row).map_err(|error| for_relay("message", error))).transpose()
    }

    async fn replay(&self, change: &Change) -> Result<Vec<Uuid>, StoreError> {
        let note = Note::of_change(Action::Replay, change)?;
        let replayed = self.change("replay", &self.statements.replay, change, note).await?;
        if !replayed.is_empty() {
            // They are replayed, rung for or not; without the ring they wait for the next poll.
            let _unheard = self.ring(&change.filter.scope).await;
        }
        Ok(replayed)
    }

    async fn discard(&self, change: &Change) -> Result<Vec<Uuid>, StoreError> {
        let note = Note::of_change(Action::Discard, change)?;
        self.change("discard", &self.statements.discard, change, note).await
    }

    async fn purge_as(&self, who: &str, purge: &Purge) -> Result<u64, StoreError> {
        let note = Note::of_purge(who, purge)?;
        self.layout.check_purge(purge)?;
        self.refuse_parts().await?;
        let sql = match purge.finished {
            Finished::Delivered => &self.statements.purge_delivered_as,
            Finished::Dead => &self.statements.purge_dead_as,
        };
        let arguments = scoped(&purge.scope, |bound| {
            bound.add(micros(purge.older_than)).add(i64::from(purge.limit));
            add(bound, &note);
        });
        self.count("purge", sql, arguments).await
    }

    async fn count_purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        self.layout.check_purge(purge)?;
        let sql = match purge.finished {
            Finished::Delivered => &self.statements.count_purge_delivered,
            Finished::Dead => &self.statements.count_purge_dead,
        };
        let arguments = scoped(&purge.scope, |bound| {
            bound.add(micros(purge.older_than));
        });
        self.count("count_purge", sql, arguments).await
    }

    async fn audit_before(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let arguments = || {
            let mut bound = Bound::default();
            bound.add(before.unwrap_or(i64::MAX)).add(i64::from(cut(limit)));
            bound.finish()
        };
        let rows = self.runner.fetch("audit", &self.statements.audit, arguments).await?;
        rows.iter().map(|row| entry(row).map_err(|error| for_relay("audit", error))).collect()
    }
}

/// The parameters of a filter, as the fragment `{asked}` wants them, and the statement's own after them.
fn asked(
    filter: &Filter,
    after: Option<Position>,
    rest: impl Fn(&mut Bound) + Send + Sync,
) -> impl Fn() -> Result<PgArguments, sqlx::Error> + Send + Sync {
    let (since, until) = between(filter, after);
    scoped(&filter.scope, move |bound| {
        bound.add(filter.topic.clone()).add(filter.key.clone()).add(filter.ids.clone());
        bound.add(since.map(Micros)).add(until.map(Micros)).add(filter.error.clone());
        rest(bound);
    })
}

fn add(bound: &mut Bound, note: &Note) {
    bound.add(note.who.clone()).add(note.action.as_str()).add(note.asked.clone());
}

fn tally(row: &PgRow) -> Result<Tally, sqlx::Error> {
    let (oldest, now): (Option<Micros>, Micros) = (row.try_get(6)?, row.try_get(7)?);
    Ok(Tally {
        namespace: text(row, 0)?,
        topic: text(row, 1)?,
        state: read_state(row.try_get(2)?)?,
        messages: number(row, 3)?,
        last_minute: number(row, 4)?,
        due: number(row, 5)?,
        oldest: oldest.map_or(Duration::ZERO, |oldest| now.since(oldest)),
    })
}

row_readers!(PgRow {
    id: Row::try_get,
    id_or_null: Row::try_get,
    text: text,
    key: Row::try_get,
    time: time,
    time_or_null: time_or_null
});

/// A text; one that was never written is empty.
fn text(row: &PgRow, at: usize) -> Result<String, sqlx::Error> {
    row.try_get::<Option<String>, _>(at).map(Option::unwrap_or_default)
}

/// A time; one that was never written is when time begins.
fn time(row: &PgRow, at: usize) -> Result<i64, sqlx::Error> {
    time_or_null(row, at).map(Option::unwrap_or_default)
}

fn time_or_null(row: &PgRow, at: usize) -> Result<Option<i64>, sqlx::Error> {
    row.try_get::<Option<Micros>, _>(at).map(|time| time.map(|time| time.0))
}
