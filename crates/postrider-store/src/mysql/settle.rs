//! Writing outcomes back, and renewing leases.
//!
//! MySQL does not say which rows an update found, only how many. So a batch is written in the hope that all its leases
//! are live, which is the rule: if as many rows were found as there are leases, it is committed. If not, it is rolled
//! back; the rows are locked and looked at, and written for those leases that are live.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postrider_core::lease::Lease;
use postrider_core::store::{Bury, Nack, Release};
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::run::{Work, begin, commit, execute, fetch, roll_back};
use super::statements::StoreStatements;
use super::types::{Bound, address, seq, uuid, uuid_or_null};
use crate::clock::micros;
use crate::sql::{Portioned, Sql};

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
    pub change: Change<'a>,
}

/// A leased row, and which lease of the batch it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    seq: i64,
    id: Uuid,
    lease: usize,
}

impl Work for Settle<'_> {
    /// The leases with their rows' addresses; nothing where the lease was lost.
    type Answer = Vec<Option<Lease>>;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Self::Answer, sqlx::Error> {
        if self.leases.is_empty() {
            return Ok(Vec::new());
        }
        if self.write_all(connection).await? {
            return Ok(self.leases.iter().copied().map(Some).collect());
        }
        self.find_and_write(connection).await
    }
}

impl Settle<'_> {
    /// Writes if all leases are live and their rows are where they should be; says whether it did.
    async fn write_all(&self, connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        let targets = self.leases.iter().enumerate();
        let targets = targets.map(|(at, lease)| Some(Target { seq: seq(lease.address)?, id: lease.id, lease: at }));
        let Some(targets) = targets.collect::<Option<Vec<_>>>() else { return Ok(false) };
        // One statement is a transaction by itself.
        if let ([target], false) = (&targets[..], matches!(self.change, Change::AckDelete)) {
            return self.write(connection, &[*target]).await;
        }
        begin(connection).await?;
        let all_found = self.write(connection, &targets).await?;
        match all_found {
            true => commit(connection).await?,
            false => roll_back(connection).await?,
        }
        Ok(all_found)
    }

    /// Locks the rows by their ids, and writes those that are ours.
    async fn find_and_write(&self, connection: &mut MySqlConnection) -> Result<Vec<Option<Lease>>, sqlx::Error> {
        begin(connection).await?;
        let rows = self.find(connection).await?;
        let ours = |lease: &Lease| {
            let (seq, worker, attempts) = rows.get(&lease.id)?;
            (*worker == Some(lease.worker) && *attempts == lease.attempt).then_some(*seq)
        };
        let answers: Vec<Option<i64>> = self.leases.iter().map(ours).collect();
        let targets = answers.iter().zip(self.leases).enumerate();
        let targets = targets.filter_map(|(at, (seq, lease))| Some(Target { seq: (*seq)?, id: lease.id, lease: at }));
        self.write(connection, &targets.collect::<Vec<_>>()).await?;
        commit(connection).await?;
        let renewed = |(seq, lease): (Option<i64>, &Lease)| Some(Lease { address: address(seq?), ..*lease });
        Ok(answers.into_iter().zip(self.leases).map(renewed).collect())
    }

    async fn find(
        &self,
        connection: &mut MySqlConnection,
    ) -> Result<HashMap<Uuid, (i64, Option<Uuid>, i32)>, sqlx::Error> {
        let ids: BTreeSet<Uuid> = self.leases.iter().map(|lease| lease.id).collect();
        let ids: Vec<Uuid> = ids.into_iter().collect();
        let mut found = HashMap::with_capacity(ids.len());
        for portion in ids.chunks(self.statements.settle_find.largest()) {
            let Some((sql, portion)) = self.statements.settle_find.padded(portion) else { continue };
            let mut bound = Bound::default();
            bound.uuids(portion);
            for row in fetch(connection, sql, bound).await? {
                found.insert(uuid(&row, 1)?, (row.try_get(0)?, uuid_or_null(&row, 2)?, row.try_get(3)?));
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
            groups.entry((lease.worker, lease.attempt)).or_default().push(*target);
        }
        for ((worker, attempt), mut group) in groups {
            group.sort_unstable();
            group.dedup_by_key(|target| (target.seq, target.id));
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
        if let (Change::AckDelete, true) = (&self.change, found < portion.len() as u64) {
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
        bound.rows(portion.iter().map(|target| &target.seq).collect());
        bound.uuids(portion.iter().map(|target| &target.id).collect());
        bound.uuid(worker).add(attempt);
        execute(connection, sql, bound).await
    }

    fn statement(&self) -> &Portioned {
        match &self.change {
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
        match &self.change {
            Change::Ack | Change::AckDelete => {}
            Change::Extend(duration) => drop_chain(bound.add(*duration)),
            Change::Nack(nacks) => {
                portion.iter().for_each(|to| drop_chain(bound.add(to.seq).add(nacks[to.lease].error.clone())));
                portion.iter().for_each(|to| drop_chain(bound.add(to.seq).add(micros(nacks[to.lease].delay))));
            }
            Change::Bury(buries) => {
                portion.iter().for_each(|to| drop_chain(bound.add(to.seq).add(buries[to.lease].error.clone())));
            }
            Change::Release(releases) => {
                portion.iter().for_each(|to| drop_chain(bound.add(to.seq).add(releases[to.lease].error.clone())));
                let delay = |to: &Target| Some(micros(releases[to.lease].delay)).filter(|delay| *delay > 0);
                portion.iter().for_each(|to| drop_chain(bound.add(to.seq).add(delay(to))));
            }
        }
    }
}

/// Ends a chain of calls.
fn drop_chain(_: &mut Bound) {}
