//! Writing outcomes back, and renewing leases.
//!
//! MySQL does not say which rows an update found, only how many. So a batch is written in the hope that all its leases
//! are live, which is the rule: if as many rows were found as there are leases, it is committed. If not, or if somebody
//! has a row locked for longer than a moment, it is rolled back; the rows that can be locked are, and are written for
//! those leases that are live. The others are tried again a few times, see [`PAUSES`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postrider_core::lease::Lease;
use postrider_core::store::{Bury, Nack, Release};
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::error::{is_lock_timeout, number};
use super::retain::each;
use super::run::{Work, begin, commit, execute, fetch, roll_back};
use super::statements::StoreStatements;
use super::types::{Bound, Form, RowKey, uuid, uuid_or_null};
use crate::clock::micros;
use crate::sql::{Portioned, Sql};

/// How long to wait before rows that somebody else has locked are tried again, in milliseconds. If one is locked still,
/// the verb is a conflict and the dispatcher repeats it for all of its rows; those that were written before are then
/// answered as lost leases. That is counted and logged and does no harm, as after a commit whose answer did not arrive.
pub(super) const PAUSES: [u64; 5] = [50, 100, 200, 400, 800];

/// What becomes of the rows.
pub(super) enum Change<'a> {
    Ack,
    AckDelete,
    Nack(&'a [Nack]),
    Bury(&'a [Bury]),
    Release(&'a [Release]),
    /// For so many microseconds from now.
    Extend(i64),
}

pub(super) struct Settle<'a> {
    pub statements: &'a StoreStatements,
    pub leases: &'a [Lease],
    /// Which of the leases this is about.
    pub wanted: &'a [usize],
    pub change: &'a Change<'a>,
    /// Whether to write in the hope that all leases are live and no row is locked.
    pub hopes: bool,
}

/// What a lease turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The row is written; the lease has its address.
    Done(Lease),
    Lost,
    /// The lease is live, but somebody else has the row locked.
    Held,
}

/// A leased row, and which lease of the batch it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    row: RowKey,
    id: Uuid,
    lease: usize,
}

impl Work for Settle<'_> {
    /// One for each lease that is wanted.
    type Answer = Vec<Answer>;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Self::Answer, sqlx::Error> {
        if self.wanted.is_empty() {
            return Ok(Vec::new());
        }
        // A statement for many rows cannot compare the turn of each.
        if self.hopes && !self.statements.shape.turns && self.write_all(connection).await? {
            return Ok(self.wanted.iter().map(|at| Answer::Done(self.leases[*at])).collect());
        }
        self.find_and_write(connection).await
    }
}

/// Gives up what a claim took and is no message, as far as it is still ours.
pub(super) struct GiveUp<'a> {
    pub statements: &'a StoreStatements,
    pub rows: &'a [RowKey],
    /// In the order of the rows.
    pub buries: &'a [Bury],
}

impl Work for GiveUp<'_> {
    type Answer = ();

    /// By what the rows are found by, and not by their leases: a row may have no id that a lease could name.
    async fn run(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let leases: Vec<Lease> = self.buries.iter().map(|bury| bury.lease).collect();
        let change = Change::Bury(self.buries);
        let settle = Settle { statements: self.statements, leases: &leases, wanted: &[], change: &change, hopes: true };
        begin(connection).await?;
        for (at, row) in self.rows.iter().enumerate() {
            let _not_ours_any_more =
                settle.write(connection, &[Target { row: row.clone(), id: leases[at].id, lease: at }]).await?;
        }
        commit(connection).await
    }
}

type Rows = HashMap<Uuid, Found>;

/// A row that is under way: what it is found by, and what tells whose it is.
#[derive(Clone)]
struct Found {
    row: RowKey,
    worker: Option<Uuid>,
    attempts: i32,
    turn: i64,
}

impl Settle<'_> {
    /// Writes if all leases are live and their rows are where they should be and not locked; says whether it did.
    async fn write_all(&self, connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        let target = |at: &usize| {
            let lease = &self.leases[*at];
            Some(Target { row: RowKey::of(lease, self.statements.shape)?, id: lease.id, lease: *at })
        };
        let Some(targets) = self.wanted.iter().map(target).collect::<Option<Vec<_>>>() else { return Ok(false) };
        // One statement is a transaction by itself. It may wait for its row for as long as the server allows, but has
        // no other locked meanwhile.
        if targets.len() == 1 && !self.is_two_statements() {
            return self.write(connection, &targets).await;
        }
        begin(connection).await?;
        match self.write(connection, &targets).await {
            Ok(true) => commit(connection).await.map(|()| true),
            Ok(false) => roll_back(connection).await.map(|()| false),
            Err(error) if number(&error).is_some_and(is_lock_timeout) => roll_back(connection).await.map(|()| false),
            Err(error) => Err(error),
        }
    }

    /// Locks the rows by their ids, and writes those that are ours.
    async fn find_and_write(&self, connection: &mut MySqlConnection) -> Result<Vec<Answer>, sqlx::Error> {
        begin(connection).await?;
        let locked = self.find(connection, &self.statements.settle_find, self.wanted).await?;
        let mut targets = Vec::new();
        let mut missing = Vec::new();
        for at in self.wanted {
            match self.live(&locked, *at) {
                Some(found) => targets.push(Target { row: found.row, id: self.leases[*at].id, lease: *at }),
                None => missing.push(*at),
            }
        }
        // What was not locked but looks like ours, somebody else has locked.
        let seen = self.find(connection, &self.statements.settle_look, &missing).await?;
        if !self.write(connection, &targets).await? {
            let text = "rows that this transaction had locked were not there to be written";
            return Err(sqlx::Error::Protocol(text.to_owned()));
        }
        commit(connection).await?;
        let answer = |at: &usize| match (self.live(&locked, *at), self.live(&seen, *at)) {
            (Some(found), _) => Answer::Done(Lease { address: found.row.address(found.turn), ..self.leases[*at] }),
            (None, Some(_)) => Answer::Held,
            (None, None) => Answer::Lost,
        };
        Ok(self.wanted.iter().map(answer).collect())
    }

    /// A lease's row, if it is among these and still ours.
    fn live(&self, rows: &Rows, at: usize) -> Option<Found> {
        let (lease, shape) = (&self.leases[at], self.statements.shape);
        let found = rows.get(&lease.id)?;
        let has_it = !shape.worker || found.worker == Some(lease.worker);
        let in_turn = !shape.turns || RowKey::is_turn_of(lease, found.turn);
        (has_it && in_turn && found.attempts == lease.attempt).then(|| found.clone())
    }

    /// Whether a change of one row is more than one statement.
    fn is_two_statements(&self) -> bool {
        match self.change {
            Change::AckDelete => true,
            Change::Bury(_) => self.statements.entomb.is_some(),
            _ => false,
        }
    }

    async fn find(
        &self,
        connection: &mut MySqlConnection,
        statement: &Portioned,
        wanted: &[usize],
    ) -> Result<Rows, sqlx::Error> {
        let shape = self.statements.shape;
        // Rows of ours are found by their ids, which are all of one form.
        let row = |lease: &Lease| match RowKey::of(lease, shape) {
            Some(row @ RowKey::Id(..)) => row,
            _ => RowKey::Id(lease.id, Form::default()),
        };
        let ids: BTreeSet<RowKey> = wanted.iter().map(|at| row(&self.leases[*at])).collect();
        let ids: Vec<RowKey> = ids.into_iter().collect();
        let mut found = HashMap::with_capacity(ids.len());
        for portion in ids.chunks(statement.largest()) {
            let Some((sql, portion)) = statement.padded(portion) else { continue };
            let mut bound = Bound::default();
            bound.rows(portion);
            for row in fetch(connection, sql, bound).await? {
                let place = RowKey::read(&row, 0, shape)?;
                let (worker, attempts) = (uuid_or_null(&row, 2)?, row.try_get(3)?);
                let turn = if shape.turns { row.try_get(4)? } else { 0 };
                found.insert(uuid(&row, 1)?, Found { row: place, worker, attempts, turn });
            }
        }
        Ok(found)
    }

    /// Writes rows, those of one worker and attempt at a time and in the order of their numbers; says whether all were
    /// found.
    async fn write(&self, connection: &mut MySqlConnection, targets: &[Target]) -> Result<bool, sqlx::Error> {
        let mut groups: BTreeMap<(Uuid, i32), Vec<Target>> = BTreeMap::new();
        for target in targets {
            let lease = &self.leases[target.lease];
            groups.entry((lease.worker, lease.attempt)).or_default().push(target.clone());
        }
        for ((worker, attempt), mut group) in groups {
            group.sort_unstable();
            group.dedup_by(|one, other| (&one.row, one.id) == (&other.row, other.id));
            let expected = group.len() as u64;
            let mut found = 0;
            for portion in group.chunks(self.statement().largest()) {
                found += self.write_portion(connection, portion, worker, attempt).await?;
            }
            if found != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn write_portion(
        &self,
        connection: &mut MySqlConnection,
        portion: &[Target],
        worker: Uuid,
        attempt: i32,
    ) -> Result<u64, sqlx::Error> {
        let Some((sql, padded)) = self.statement().padded(portion) else { return Ok(0) };
        let found = self.execute(connection, sql, &padded, worker, attempt).await?;
        if let (Change::Bury(_), Some(entomb), true) =
            (self.change, &self.statements.entomb, found == portion.len() as u64)
        {
            let rows: Vec<RowKey> = portion.iter().map(|target| target.row.clone()).collect();
            each(connection, entomb, &rows).await?;
        }
        if let (Change::AckDelete, true) = (self.change, found < portion.len() as u64) {
            // Rows with a dedupe key stay, and are marked.
            let Some((sql, padded)) = self.statements.ack.padded(portion) else { return Ok(found) };
            return Ok(found + self.execute(connection, sql, &padded, worker, attempt).await?);
        }
        Ok(found)
    }

    async fn execute(
        &self,
        connection: &mut MySqlConnection,
        sql: &Sql,
        portion: &[&Target],
        worker: Uuid,
        attempt: i32,
    ) -> Result<u64, sqlx::Error> {
        let mut bound = Bound::default();
        self.bind(&mut bound, portion);
        bound.rows(portion.iter().map(|target| &target.row).collect());
        let shape = self.statements.shape;
        if shape.numbered {
            bound.uuids(portion.iter().map(|target| &target.id).collect());
        }
        if shape.worker {
            bound.uuid(worker);
        }
        bound.add(attempt);
        execute(connection, sql, bound).await
    }

    fn statement(&self) -> &Portioned {
        match self.change {
            Change::Ack => &self.statements.ack,
            Change::AckDelete => &self.statements.ack_delete,
            Change::Nack(_) => &self.statements.nack,
            Change::Bury(_) => &self.statements.bury,
            Change::Release(_) => &self.statements.release,
            Change::Extend(_) => &self.statements.extend,
        }
    }

    /// Binds what is written, in the order of the statement.
    fn bind(&self, bound: &mut Bound, portion: &[&Target]) {
        match self.change {
            Change::Ack | Change::AckDelete => {}
            Change::Extend(duration) => {
                if self.statements.shape.lease {
                    bound.add(*duration);
                }
            }
            Change::Nack(nacks) => {
                self.errors(bound, portion, |to| Some(nacks[to.lease].error.clone()));
                portion.iter().for_each(|to| drop_chain(bound.row(&to.row).add(micros(nacks[to.lease].delay))));
            }
            Change::Bury(buries) => self.errors(bound, portion, |to| Some(buries[to.lease].error.clone())),
            Change::Release(releases) => {
                self.errors(bound, portion, |to| releases[to.lease].error.clone());
                let delay = |to: &Target| Some(micros(releases[to.lease].delay)).filter(|delay| *delay > 0);
                portion.iter().for_each(|to| drop_chain(bound.row(&to.row).add(delay(to))));
            }
        }
    }

    fn errors(&self, bound: &mut Bound, portion: &[&Target], error: impl Fn(&Target) -> Option<String>) {
        if self.statements.shape.error {
            portion.iter().for_each(|to| drop_chain(bound.row(&to.row).add(error(to))));
        }
    }
}

/// Ends a chain of calls.
fn drop_chain(_: &mut Bound) {}
