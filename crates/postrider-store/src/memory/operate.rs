//! The operator's verbs in memory, each under one lock.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::operate::{Action, AuditEntry, Change, Filter, Operator, Position, REPLAYED, Record, Tally};
use postrider_core::state::{Event, State, transition};
use postrider_core::store::{Headers, Purge, Scope, Store, StoreError};
use uuid::Uuid;

use super::store::MemoryStore;
use super::table::{StoredMessage, Table};
use crate::clock::{between, micros};
use crate::operate::{LATELY, Note, check, cut, in_order};

impl Table {
    fn overview(&self, scope: &Scope, delivered: bool, now: i64) -> Vec<Tally> {
        let mut tallies: BTreeMap<(&str, &str, &str), Tally> = BTreeMap::new();
        for row in self.in_scope(scope).filter(|row| delivered || row.status != State::Delivered) {
            let place = (row.namespace.as_str(), row.topic.as_str(), row.status.as_str());
            count(tallies.entry(place).or_insert_with(|| nothing_of(row)), row, now);
        }
        in_order(tallies.into_values().collect())
    }

    fn dead<'a>(&'a self, filter: &'a Filter) -> impl Iterator<Item = &'a StoredMessage> {
        self.in_scope(&filter.scope).filter(|row| is_meant(row, filter))
    }

    fn page(&self, filter: &Filter, after: Option<Position>, limit: u32) -> Vec<Record> {
        let place = |row: &StoredMessage| (row.updated_at_micros, row.id);
        let after = after.map(|position| (position.updated_at_micros, position.id));
        let mut rows: Vec<_> = self.dead(filter).filter(|row| after.is_none_or(|after| place(row) > after)).collect();
        rows.sort_unstable_by_key(|row| place(row));
        rows.into_iter().take(count_of(limit)).map(|row| Record { payload: None, ..record(row) }).collect()
    }

    /// Changes dead rows, those that died first, and notes it.
    fn change(&mut self, change: &Change, note: Note, now: i64, put: impl Fn(&mut Self, i64)) -> Vec<Uuid> {
        let meant = |row: &StoredMessage| is_meant(row, &change.filter);
        let died = |row: &StoredMessage| Some(row.updated_at_micros);
        let rows = self.oldest(&change.filter.scope, cut(change.limit), meant, died);
        let ids: Vec<Uuid> = rows.iter().filter_map(|seq| self.rows.get(seq)).map(|row| row.id).collect();
        rows.into_iter().for_each(|seq| put(self, seq));
        self.note(note, ids.len() as u64, ids.clone(), now);
        ids
    }

    fn put_back(&mut self, seq: i64, now: i64) {
        let Some(row) = self.rows.get_mut(&seq) else { return };
        let Some(state) = transition(row.status, Event::Replay) else { return };
        row.settle(state, now);
        row.attempts = 0;
        row.next_attempt_at_micros = now;
        raise(&mut row.headers);
    }

    /// Nothing is noted where nothing was changed.
    fn note(&mut self, note: Note, messages: u64, ids: Vec<Uuid>, now: i64) {
        if messages > 0 {
            let action = note.action.as_str().to_owned();
            let seq = self.audit.last().map_or(1, |last| last.seq + 1);
            self.audit.push(AuditEntry {
                seq,
                at_micros: now,
                who: note.who,
                action,
                asked: note.asked,
                messages,
                ids,
            });
        }
    }
}

#[async_trait]
impl Operator for MemoryStore {
    async fn overview(&self, scope: &Scope, delivered: bool) -> Result<Vec<Tally>, StoreError> {
        Ok(self.with_table(|table, now| table.overview(scope, delivered, now)))
    }

    async fn dead(&self, filter: &Filter, after: Option<Position>, limit: u32) -> Result<Vec<Record>, StoreError> {
        check(filter)?;
        Ok(self.with_table(|table, _| table.page(filter, after, limit)))
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64, StoreError> {
        check(filter)?;
        Ok(self.with_table(|table, _| table.dead(filter).count() as u64))
    }

    async fn message(&self, id: Uuid) -> Result<Option<Record>, StoreError> {
        Ok(self.with_table(|table, _| table.by_id(id).map(|row| record(row))))
    }

    async fn replay(&self, change: &Change) -> Result<Vec<Uuid>, StoreError> {
        let note = Note::of_change(Action::Replay, change)?;
        let put = |now| move |table: &mut Table, seq: i64| table.put_back(seq, now);
        let replayed = self.with_table(|table, now| table.change(change, note, now, put(now)));
        if !replayed.is_empty() {
            self.ring(&change.filter.scope).await?;
        }
        Ok(replayed)
    }

    async fn discard(&self, change: &Change) -> Result<Vec<Uuid>, StoreError> {
        let note = Note::of_change(Action::Discard, change)?;
        Ok(self.with_table(|table, now| table.change(change, note, now, Table::delete)))
    }

    async fn purge_as(&self, who: &str, purge: &Purge) -> Result<u64, StoreError> {
        let note = Note::of_purge(who, purge)?;
        Ok(self.with_table(|table, now| {
            let deleted = table.purge(purge, now);
            table.note(note, deleted, Vec::new(), now);
            deleted
        }))
    }

    async fn count_purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        let all = Purge { limit: u32::MAX, ..purge.clone() };
        Ok(self.with_table(|table, now| table.old(&all, now).len() as u64))
    }

    async fn audit_before(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let is_before = |entry: &&AuditEntry| before.is_none_or(|before| entry.seq < before);
        Ok(self
            .with_table(|table, _| table.audit.iter().rev().filter(is_before).take(count_of(limit)).cloned().collect()))
    }
}

fn count_of(limit: u32) -> usize {
    usize::try_from(cut(limit)).unwrap_or(usize::MAX)
}

/// Whether a row in the filter's scope is meant. Only ASCII letters are the same in both cases, as on SQLite, so that a
/// test finds no more than the poorest database would.
fn is_meant(row: &StoredMessage, filter: &Filter) -> bool {
    let error = || row.last_error.as_deref().unwrap_or_default().to_ascii_lowercase();
    row.status == State::Dead
        && filter.topic.as_ref().is_none_or(|topic| *topic == row.topic)
        && filter.key.as_ref().is_none_or(|key| row.key.as_ref() == Some(key))
        && filter.ids.as_ref().is_none_or(|ids| ids.contains(&row.id))
        && filter.since_micros.is_none_or(|since| row.updated_at_micros >= since)
        && filter.until_micros.is_none_or(|until| row.updated_at_micros < until)
        && filter.error.as_ref().is_none_or(|part| error().contains(&part.to_ascii_lowercase()))
}

fn nothing_of(row: &StoredMessage) -> Tally {
    let (namespace, topic, state) = (row.namespace.clone(), row.topic.clone(), row.status);
    Tally { namespace, topic, state, messages: 0, last_minute: 0, due: 0, oldest: Duration::ZERO }
}

/// Adds a row to its tally.
fn count(tally: &mut Tally, row: &StoredMessage, now: i64) {
    let pending = row.status == State::Pending;
    let came_at = if pending { row.created_at_micros } else { row.updated_at_micros };
    let waits_since = if pending { row.next_attempt_at_micros } else { row.updated_at_micros };
    tally.messages += 1;
    tally.last_minute += u64::from(came_at > now.saturating_sub(micros(LATELY)));
    tally.due += u64::from(row.is_due(now));
    tally.oldest = tally.oldest.max(between(waits_since, now));
}

/// One more replay, in the header that says how many there were.
fn raise(headers: &mut Headers) {
    let times = headers.get(REPLAYED).and_then(|times| times.parse::<u32>().ok()).unwrap_or(0);
    headers.insert(REPLAYED.to_owned(), times.saturating_add(1).to_string());
}

fn record(row: &StoredMessage) -> Record {
    let row = row.clone();
    Record {
        id: row.id,
        namespace: row.namespace,
        topic: row.topic,
        key: row.key,
        tenant_id: row.tenant_id,
        dedupe_key: row.dedupe_key,
        state: row.status,
        attempts: row.attempts,
        max_attempts: row.max_attempts,
        last_error: row.last_error,
        headers: row.headers,
        payload: Some(row.payload),
        next_attempt_at_micros: row.next_attempt_at_micros,
        locked_by: row.locked_by,
        locked_until_micros: row.locked_until_micros,
        created_at_micros: row.created_at_micros,
        updated_at_micros: row.updated_at_micros,
        delivered_at_micros: row.delivered_at_micros,
    }
}
