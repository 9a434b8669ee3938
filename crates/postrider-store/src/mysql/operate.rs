//! The operator's verbs on MySQL and MariaDB. A change and its line in the audit table are one transaction.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::operate::{Action, AuditEntry, Change, Filter, Operator, Position, Record, Tally};
use postrider_core::store::{Finished, Purge, Scope, Store, StoreError};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::error::for_relay;
use super::retain::{Purging, count, each};
use super::run::{Work, begin, commit, execute, fetch, roll_back};
use super::scope::Within;
use super::statements::{FinishedStatement, StoreStatements};
use super::store::{MySqlStore, duration};
use super::types::{Bound, RowKey, key, text, uuid_or_null};
use crate::clock::micros;
use crate::operate::{Note, between, check, cut, ids_text, in_order, read_state, row_readers, within};
use crate::sql::{Portioned, Sql};

impl MySqlStore {
    async fn change(
        &self,
        verb: &'static str,
        put: &Portioned,
        change: &Change,
        note: Note,
    ) -> Result<Vec<Uuid>, StoreError> {
        let Some(within) = possible(&change.filter)? else { return Ok(Vec::new()) };
        let limit = count(cut(change.limit));
        let work = Changing { statements: &self.statements, within, filter: &change.filter, limit, put, note: &note };
        self.runner.run(verb, &work).await
    }
}

#[async_trait]
impl Operator for MySqlStore {
    async fn overview(&self, scope: &Scope, delivered: bool) -> Result<Vec<Tally>, StoreError> {
        let Some(within) = Within::of(scope)? else { return Ok(Vec::new()) };
        let work = Tallying { statements: &self.statements, within, delivered };
        Ok(in_order(self.runner.run("overview", &work).await?))
    }

    async fn dead(&self, filter: &Filter, after: Option<Position>, limit: u32) -> Result<Vec<Record>, StoreError> {
        check(filter)?;
        let Some(within) = possible(filter)? else { return Ok(Vec::new()) };
        let limit = count(cut(limit));
        self.runner.run("dead", &Listing { statements: &self.statements, within, filter, after, limit }).await
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64, StoreError> {
        check(filter)?;
        let Some(within) = possible(filter)? else { return Ok(0) };
        self.runner.run("count_dead", &CountingDead { statements: &self.statements, within, filter }).await
    }

    async fn message(&self, id: Uuid) -> Result<Option<Record>, StoreError> {
        let bind = |bound: &mut Bound| {
            bound.uuid(id);
        };
        let rows = self.runner.run("message", &Reading { sql: &self.statements.message, bind }).await?;
        rows.first().map(|row| with_payload(row).map_err(|error| for_relay("message", error))).transpose()
    }

    async fn replay(&self, change: &Change) -> Result<Vec<Uuid>, StoreError> {
        let note = Note::of_change(Action::Replay, change)?;
        let replayed = self.change("replay", &self.statements.replay, change, note).await?;
        if !replayed.is_empty() {
            self.ring(&change.filter.scope).await?;
        }
        Ok(replayed)
    }

    async fn discard(&self, change: &Change) -> Result<Vec<Uuid>, StoreError> {
        let note = Note::of_change(Action::Discard, change)?;
        self.change("discard", &self.statements.purge_delete, change, note).await
    }

    async fn purge_as(&self, who: &str, purge: &Purge) -> Result<u64, StoreError> {
        let note = Note::of_purge(who, purge)?;
        self.layout().check_purge(purge)?;
        let Some(within) = Within::of(&purge.scope)? else { return Ok(0) };
        let work = Purging { statements: &self.statements, within, purge, note: Some(&note) };
        self.runner.run("purge", &work).await
    }

    async fn count_purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        self.layout().check_purge(purge)?;
        let Some(within) = Within::of(&purge.scope)? else { return Ok(0) };
        let statement = match purge.finished {
            Finished::Delivered => &self.statements.count_purge_delivered,
            Finished::Dead => &self.statements.count_purge_dead,
        };
        self.runner.run("count_purge", &CountingOld { statement, within, older_than: purge.older_than }).await
    }

    async fn audit_before(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let bind = |bound: &mut Bound| {
            bound.add(before.unwrap_or(i64::MAX)).count(count(cut(limit)));
        };
        let rows = self.runner.run("audit", &Reading { sql: &self.statements.audit, bind }).await?;
        rows.iter().map(|row| entry(row).map_err(|error| for_relay("audit", error))).collect()
    }
}

/// The scope of a filter; nothing if no message can be meant. A topic is ASCII; comparing its column with anything else
/// would be an illegal mix of collations.
fn possible(filter: &Filter) -> Result<Option<Within>, StoreError> {
    match filter.topic.as_ref().is_none_or(|topic| topic.is_ascii()) {
        true => Within::of(&filter.scope),
        false => Ok(None),
    }
}

/// The parameters of the fragment `{asked}`.
fn asked(bound: &mut Bound, filter: &Filter, after: Option<Position>) {
    let (since, until) = between(filter, after);
    let key = filter.key.as_ref().map(|key| key.as_bytes().to_vec());
    bound.add(filter.topic.clone()).add(filter.topic.clone()).add(key.clone()).add(key);
    bound.add(since).add(since).add(until).add(until).add(filter.error.clone()).add(filter.error.clone());
}

/// Runs a statement about the named rows of a filter, in portions.
async fn named(
    connection: &mut MySqlConnection,
    statement: &Portioned,
    ids: &[Uuid],
    filter: &Filter,
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let mut rows = Vec::new();
    for portion in ids.chunks(statement.largest()) {
        let Some((sql, portion)) = statement.padded(portion) else { continue };
        let mut bound = Bound::default();
        bound.uuids(portion).tenant(filter.scope.tenant);
        asked(&mut bound, filter, None);
        rows.extend(fetch(connection, sql, bound).await?);
    }
    Ok(rows)
}

/// Writes a line to the audit table, in the transaction of the change.
pub(super) async fn write(
    connection: &mut MySqlConnection,
    statements: &StoreStatements,
    note: &Note,
    messages: u64,
    ids: &[Uuid],
) -> Result<(), sqlx::Error> {
    let mut bound = Bound::default();
    bound.add(note.who.clone()).add(note.action.as_str()).add(note.asked.clone());
    bound.add(i64::try_from(messages).unwrap_or(i64::MAX)).add(ids_text(ids));
    execute(connection, &statements.note, bound).await.map(drop)
}

/// Runs one statement that reads.
struct Reading<'a, B> {
    sql: &'a Sql,
    bind: B,
}

impl<B: Fn(&mut Bound) + Sync> Work for Reading<'_, B> {
    type Answer = Vec<MySqlRow>;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let mut bound = Bound::default();
        (self.bind)(&mut bound);
        fetch(connection, self.sql, bound).await
    }
}

/// Counts messages by namespace, topic and state.
struct Tallying<'a> {
    statements: &'a StoreStatements,
    within: Within,
    delivered: bool,
}

impl Work for Tallying<'_> {
    type Answer = Vec<Tally>;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Vec<Tally>, sqlx::Error> {
        let mut rows = self.within.fetch(connection, &self.statements.overview, 3, |_| {}, |_| {}).await?;
        if self.delivered {
            let statement = &self.statements.overview_delivered;
            rows.extend(self.within.fetch(connection, statement, 1, |_| {}, |_| {}).await?);
        }
        rows.iter().map(tally).collect()
    }
}

/// Lists dead messages. Those that were finished by hand may have a lease and are apart in the index, so two lists are
/// merged.
struct Listing<'a> {
    statements: &'a StoreStatements,
    within: Within,
    filter: &'a Filter,
    after: Option<Position>,
    limit: usize,
}

impl Work for Listing<'_> {
    type Answer = Vec<Record>;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Vec<Record>, sqlx::Error> {
        let mut records = match &self.filter.ids {
            Some(ids) => self.named(connection, ids).await?,
            None => self.oldest(connection).await?,
        };
        records.sort_by_key(place);
        records.truncate(self.limit);
        Ok(records)
    }
}

impl Listing<'_> {
    async fn oldest(&self, connection: &mut MySqlConnection) -> Result<Vec<Record>, sqlx::Error> {
        let mut records = Vec::new();
        for statement in [&self.statements.dead.unleased, &self.statements.dead.leased] {
            let after = |bound: &mut Bound| {
                let time = self.after.map(|position| within(position.updated_at_micros));
                asked(bound, self.filter, self.after);
                bound.add(time).add(time).add(time);
                bound.add(self.after.map(|position| position.id.hyphenated())).count(self.limit);
            };
            for row in self.within.fetch(connection, statement, 1, |_| {}, after).await? {
                records.push(record(&row)?);
            }
        }
        Ok(records)
    }

    async fn named(&self, connection: &mut MySqlConnection, ids: &[Uuid]) -> Result<Vec<Record>, sqlx::Error> {
        let rows = named(connection, &self.statements.dead_ids, ids, self.filter).await?;
        let mut records = rows.iter().map(record).collect::<Result<Vec<_>, _>>()?;
        let after = self.after.map(|position| (position.updated_at_micros, position.id));
        let scope = &self.filter.scope;
        records.retain(|record| {
            scope.contains(&record.namespace, record.tenant_id) && after.is_none_or(|after| place(record) > after)
        });
        Ok(records)
    }
}

/// Where a record is in a list.
fn place(record: &Record) -> (i64, Uuid) {
    (record.updated_at_micros, record.id)
}

/// Counts dead messages.
struct CountingDead<'a> {
    statements: &'a StoreStatements,
    within: Within,
    filter: &'a Filter,
}

impl Work for CountingDead<'_> {
    type Answer = u64;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
        if let Some(ids) = &self.filter.ids {
            let rows = named(connection, &self.statements.dead_ids, ids, self.filter).await?;
            let records = rows.iter().map(record).collect::<Result<Vec<_>, _>>()?;
            let scope = &self.filter.scope;
            return Ok(records.iter().filter(|found| scope.contains(&found.namespace, found.tenant_id)).count() as u64);
        }
        let after = |bound: &mut Bound| asked(bound, self.filter, None);
        let rows = self.within.fetch(connection, &self.statements.count_dead, 1, |_| {}, after).await?;
        rows.first().map_or(Ok(0), |row| number(row, 0))
    }
}

/// Counts rows that finished long ago.
struct CountingOld<'a> {
    statement: &'a FinishedStatement,
    within: Within,
    older_than: Duration,
}

impl Work for CountingOld<'_> {
    type Answer = u64;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
        let mut sum = 0;
        for statement in [&self.statement.unleased, &self.statement.leased] {
            let before = |bound: &mut Bound| {
                bound.add(-micros(self.older_than));
            };
            let rows = self.within.fetch(connection, statement, 1, before, |_| {}).await?;
            sum += rows.first().map_or(Ok(0), |row| number(row, 0))?;
        }
        Ok(sum)
    }
}

/// Changes dead messages, and notes it.
struct Changing<'a> {
    statements: &'a StoreStatements,
    within: Within,
    filter: &'a Filter,
    limit: usize,
    /// What is done to the rows that were found and locked.
    put: &'a Portioned,
    note: &'a Note,
}

impl Work for Changing<'_> {
    type Answer = Vec<Uuid>;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Vec<Uuid>, sqlx::Error> {
        begin(connection).await?;
        let mut found = match &self.filter.ids {
            Some(ids) => self.named(connection, ids).await?,
            None => self.oldest(connection).await?,
        };
        if self.note.action == Action::Discard {
            found.retain(|(row, _)| row.is_deletable());
        }
        if found.is_empty() {
            roll_back(connection).await?;
            return Ok(Vec::new());
        }
        let (rows, ids): (Vec<RowKey>, Vec<Uuid>) = found.into_iter().unzip();
        each(connection, self.put, &rows).await?;
        write(connection, self.statements, self.note, ids.len() as u64, &ids).await?;
        commit(connection).await?;
        Ok(ids)
    }
}

impl Changing<'_> {
    async fn oldest(&self, connection: &mut MySqlConnection) -> Result<Vec<(RowKey, Uuid)>, sqlx::Error> {
        let mut found = Vec::new();
        for statement in [&self.statements.dead_pick.unleased, &self.statements.dead_pick.leased] {
            let room = self.limit.saturating_sub(found.len());
            if room == 0 {
                break;
            }
            let after = |bound: &mut Bound| {
                asked(bound, self.filter, None);
                bound.count(room);
            };
            for row in self.within.fetch(connection, statement, 1, |_| {}, after).await? {
                found.push((RowKey::read(&row, 0, self.statements.shape)?, id(&row, 1)?));
            }
        }
        Ok(found)
    }

    async fn named(&self, connection: &mut MySqlConnection, ids: &[Uuid]) -> Result<Vec<(RowKey, Uuid)>, sqlx::Error> {
        let mut found = Vec::new();
        for row in named(connection, &self.statements.dead_pick_ids, ids, self.filter).await? {
            let namespace = text(&row, 2)?;
            // The statement saw to the tenant.
            if self.filter.scope.contains(&namespace, self.filter.scope.tenant) {
                let place = RowKey::read(&row, 0, self.statements.shape)?;
                found.push((row.try_get::<i64, _>(3)?, place, id(&row, 1)?));
            }
        }
        found.sort_unstable();
        found.truncate(self.limit);
        Ok(found.into_iter().map(|(_, row, id)| (row, id)).collect())
    }
}

fn tally(row: &MySqlRow) -> Result<Tally, sqlx::Error> {
    let oldest: Option<i64> = row.try_get(6)?;
    Ok(Tally {
        namespace: text(row, 0)?,
        topic: text(row, 1)?,
        state: read_state(row.try_get(2)?)?,
        messages: number(row, 3)?,
        last_minute: number(row, 4)?,
        due: number(row, 5)?,
        oldest: oldest.map_or(Duration::ZERO, duration),
    })
}

/// An id; the nil UUID for a row whose id is none, and which says so in its error.
fn id(row: &MySqlRow, at: usize) -> Result<Uuid, sqlx::Error> {
    uuid_or_null(row, at).map(Option::unwrap_or_default)
}

row_readers!(MySqlRow {
    id: id,
    id_or_null: uuid_or_null,
    text: text,
    key: key,
    time: Row::try_get,
    time_or_null: Row::try_get
});
