//! Sweeping and purging.

use postrider_core::store::{Finished, Purge, Swept};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::operate::write;
use super::run::{Work, begin, commit, execute, fetch};
use super::scope::Within;
use super::statements::{Shape, StoreStatements, Walk};
use super::types::{Bound, RowKey, uuid_or_null};
use crate::clock::micros;
use crate::operate::Note;
use crate::sql::Portioned;

/// Buries rows whose attempts are spent. They are looked for without locks; only what is found is locked and looked at
/// again, so that a sweep with nothing to do disturbs nobody.
pub(super) struct Sweep<'a> {
    pub statements: &'a StoreStatements,
    pub within: Within,
    pub max_attempts: i32,
    pub limit: usize,
}

impl Work for Sweep<'_> {
    type Answer = Swept;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Swept, sqlx::Error> {
        let found = self.look(connection).await?;
        let buried = if found.is_empty() { Vec::new() } else { self.bury(connection, found).await? };
        let attempts = |bound: &mut Bound| {
            bound.add(self.max_attempts).add(self.max_attempts);
        };
        let suspects = &self.statements.sweep_suspects;
        let suspects = self.within.fetch(connection, suspects, 1, attempts, |_| {}).await?;
        Ok(Swept { buried, suspects: !suspects.is_empty() })
    }
}

impl Sweep<'_> {
    async fn look(&self, connection: &mut MySqlConnection) -> Result<Vec<RowKey>, sqlx::Error> {
        let before = |bound: &mut Bound| {
            bound.add(self.max_attempts);
        };
        let after = |bound: &mut Bound| {
            bound.count(self.limit);
        };
        let crashed = self.within.fetch(connection, &self.statements.sweep_crashed, 1, before, after).await?;
        let shape = self.statements.shape;
        let mut found = keys(&crashed, shape)?;
        let ours = match &self.statements.walk {
            Walk::Ours(ours) => ours,
            Walk::Flat(flat) => {
                let after = |bound: &mut Bound| {
                    bound.add(self.max_attempts).count(self.limit.saturating_sub(found.len()));
                };
                let spent = self.within.fetch(connection, &flat.sweep_spent, 1, |_| {}, after).await?;
                found.extend(keys(&spent, shape)?);
                return Ok(found);
            }
        };
        for head in self.within.heads(connection, ours).await?.iter().filter(|head| head.is_due()) {
            let room = self.limit.saturating_sub(found.len());
            if room == 0 {
                break;
            }
            let mut bound = Bound::default();
            bound.add(head.namespace.clone()).tenant(self.within.tenant).add(self.max_attempts).count(room);
            found.extend(keys(&fetch(connection, &ours.sweep_spent, bound).await?, shape)?);
            let mut bound = Bound::default();
            bound.add(self.max_attempts).tenant(self.within.tenant);
            bound.add(head.namespace.clone()).tenant(self.within.tenant);
            for row in fetch(connection, &ours.sweep_keys, bound).await? {
                found.extend(row.try_get::<Option<i64>, _>(0)?.map(RowKey::Number));
            }
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(self.limit);
        Ok(found)
    }

    async fn bury(&self, connection: &mut MySqlConnection, found: Vec<RowKey>) -> Result<Vec<Uuid>, sqlx::Error> {
        begin(connection).await?;
        let (mut locked, mut buried) = (Vec::new(), Vec::new());
        for portion in found.chunks(self.statements.sweep_lock.largest()) {
            let Some((sql, portion)) = self.statements.sweep_lock.padded(portion) else { continue };
            let mut bound = Bound::default();
            bound.rows(portion).add(self.max_attempts);
            for row in fetch(connection, sql, bound).await? {
                locked.push(RowKey::read(&row, 0, self.statements.shape)?);
                buried.extend(uuid_or_null(&row, 1)?);
            }
        }
        each(connection, &self.statements.sweep_bury, &locked).await?;
        if let Some(entomb) = &self.statements.entomb {
            each(connection, entomb, &locked).await?;
        }
        commit(connection).await?;
        Ok(buried)
    }
}

/// Deletes rows that finished long ago.
pub(super) struct Purging<'a> {
    pub statements: &'a StoreStatements,
    pub within: Within,
    pub purge: &'a Purge,
    /// For the audit table, if an operator asked for it.
    pub note: Option<&'a Note>,
}

impl Work for Purging<'_> {
    type Answer = u64;

    /// The lock is the session's, so it is given back whatever happened; a connection that is lost or torn down gives
    /// it back too.
    async fn run(&self, connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
        let rows = fetch(connection, &self.statements.purge_lock, Bound::default()).await?;
        let got: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?.flatten();
        if got != Some(1) {
            return Ok(0);
        }
        let deleted = self.delete(connection).await;
        let given_back = fetch(connection, &self.statements.purge_unlock, Bound::default()).await;
        let deleted = deleted?;
        given_back?;
        Ok(deleted)
    }
}

impl Purging<'_> {
    async fn delete(&self, connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
        let statement = match self.purge.finished {
            Finished::Delivered => &self.statements.purge_delivered,
            Finished::Dead => &self.statements.purge_dead,
        };
        let before = |bound: &mut Bound| {
            bound.add(-micros(self.purge.older_than));
        };
        begin(connection).await?;
        let mut found = Vec::new();
        for statement in [&statement.unleased, &statement.leased] {
            let room = count(self.purge.limit).saturating_sub(found.len());
            let after = |bound: &mut Bound| {
                bound.count(room);
            };
            if room > 0 {
                let rows = self.within.fetch(connection, statement, 1, before, after).await?;
                found.extend(keys(&rows, self.statements.shape)?);
            }
        }
        found.retain(RowKey::is_deletable);
        let deleted = each(connection, &self.statements.purge_delete, &found).await?;
        if let Some(note) = self.note.filter(|_| deleted > 0) {
            write(connection, self.statements, note, deleted, &[]).await?;
        }
        commit(connection).await?;
        Ok(deleted)
    }
}

/// Runs a statement for all rows, in portions and in the order of their numbers; answers how many it changed.
pub(super) async fn each(
    connection: &mut MySqlConnection,
    statement: &Portioned,
    rows: &[RowKey],
) -> Result<u64, sqlx::Error> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    let mut changed = 0;
    for portion in rows.chunks(statement.largest()) {
        let Some((sql, portion)) = statement.padded(portion) else { continue };
        let mut bound = Bound::default();
        bound.rows(portion);
        changed += execute(connection, sql, bound).await?;
    }
    Ok(changed)
}

fn keys(rows: &[MySqlRow], shape: Shape) -> Result<Vec<RowKey>, sqlx::Error> {
    rows.iter().map(|row| RowKey::read(row, 0, shape)).collect()
}

pub(super) fn count(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
