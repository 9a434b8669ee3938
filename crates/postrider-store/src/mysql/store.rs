//! The relay's verbs on MySQL and MariaDB.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::doorbell::Doorbell;
use postrider_core::lease::Lease;
use postrider_core::store::{
    Bury, Capabilities, ClaimOrder, ClaimRequest, Claimed, Delivered, Nack, Order, Purge, Release, Scope, Settled,
    Stats, Store, StoreError, StoreErrorKind, Swept,
};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, MySqlPool, Row};

use super::claim::{Claim, Outcome};
use super::claimed::Taken;
use super::doorbell::NoDoorbell;
use super::error::for_relay;
use super::layout::DIALECT;
use super::retain::{Purging, Sweep};
use super::run::{Runner, Work};
use super::scope::{Within, coming, head};
use super::settle::{Answer, Change, GiveUp, PAUSES, Settle};
use super::statements::{OurStatements, StoreStatements, Walk};
use super::types::{Bound, RowKey};
use super::{check, migrate};
use crate::claimed::{Unreadable, not_given_up};
use crate::clock::micros;
use crate::enqueue::Outbox;
use crate::layout::{ClaimBy, Layout, LayoutError, verdict};
use crate::migration::Pending;
use crate::names::Names;

/// An outbox in a MySQL or MariaDB database, as a relay sees it. Cheap to clone.
///
/// It keeps up to four connections of the pool while it lives (to claim, settle, renew and maintain at the same time).
/// There is no signal from one connection to another, so dispatchers poll. A session that is not strict or does not
/// speak utf8mb4 is refused before its first statement, see [`check`](Self::check).
#[derive(Debug, Clone)]
pub struct MySqlStore {
    pub(super) runner: Runner,
    pub(super) names: Names,
    layout: Arc<Layout>,
    pub(super) statements: Arc<StoreStatements>,
}

impl MySqlStore {
    /// The outbox with these names in the pool's database. Opens no connection.
    pub fn new(pool: MySqlPool, names: Names) -> Self {
        Self::rendered(pool, Layout::postrider(names))
    }

    /// The outbox in a table of another shape. Opens no connection; refuses a layout that makes no sense, and one that only
    /// PostgreSQL can have. Times in the table are UTC.
    pub fn with_layout(pool: MySqlPool, layout: Layout) -> Result<Self, LayoutError> {
        layout.check()?;
        layout.check_for(&DIALECT)?;
        Ok(Self::rendered(pool, layout))
    }

    fn rendered(pool: MySqlPool, layout: Layout) -> Self {
        let statements = StoreStatements::render(&layout).into();
        Self { runner: Runner::new(pool), names: layout.names.clone(), layout: layout.into(), statements }
    }

    /// Refuses a server that is too old, a session whose `sql_mode` is not strict or whose character set is not utf8mb4,
    /// and a table whose engine is not InnoDB: each would lose or change data silently. The error names the setting.
    pub async fn check(&self) -> Result<(), StoreError> {
        let mut connection = self.runner.pool.acquire().await.map_err(|error| for_relay("check", error))?;
        check::session(&mut connection).await?;
        check::engine(&mut connection, &self.names).await
    }

    /// Checks the server and brings the schema up to date; safe to call from every process at start.
    pub async fn migrate(&self) -> Result<Vec<i32>, StoreError> {
        self.check().await?;
        if migrate::adds_columns(&self.layout) {
            verdict::refuse_additions(self).await?;
        }
        migrate::run(&self.runner.pool, &self.layout).await
    }

    /// A transaction that writes, for [`AnyStore`](crate::AnyStore).
    pub(crate) async fn begin(&self) -> Result<sqlx::Transaction<'static, sqlx::MySql>, sqlx::Error> {
        self.runner.pool.begin().await
    }

    /// What went wrong with such a transaction.
    pub(crate) fn failed(&self, error: sqlx::Error) -> StoreError {
        for_relay("enqueue", error)
    }

    /// The names of the outbox in its database.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// What its table looks like.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The database that the outbox is in, unless neither its names nor the connections say one.
    pub(super) fn database(&self) -> Option<String> {
        let of_connections = || self.runner.pool.connect_options().get_database().map(str::to_owned);
        self.names.schema().map(str::to_owned).or_else(of_connections)
    }

    /// What [`migrate`](Self::migrate) would run now; writes nothing.
    pub async fn pending(&self) -> Result<Vec<Pending>, StoreError> {
        migrate::pending(&self.runner.pool, &self.layout).await
    }

    /// The producer's side of the same outbox.
    pub fn outbox(&self) -> Outbox {
        Outbox::rendered((*self.layout).clone())
    }

    /// The connections, which the application may use too.
    pub fn pool(&self) -> &MySqlPool {
        &self.runner.pool
    }

    /// The statements it runs, for reviews and tests.
    pub fn statements(&self) -> &StoreStatements {
        &self.statements
    }

    /// The lease of a table that does not say until when its rows are locked is as long as the layout says.
    fn check_lease(&self, lease: Duration) -> Result<(), StoreError> {
        match self.layout.claim == ClaimBy::Lease || lease <= self.layout.lock_timeout {
            true => Ok(()),
            false => Err(self.layout.lease_too_long(lease)),
        }
    }

    /// Refuses what only our own table has the indexes for.
    fn check_walk(&self, what: &str, wanted: bool) -> Result<(), StoreError> {
        match self.statements.walk {
            Walk::Flat(_) if wanted => Err(self.layout.not_made_for(what, DIALECT.name)),
            _ => Ok(()),
        }
    }

    async fn settle(
        &self,
        verb: &'static str,
        leases: &[Lease],
        change: Change<'_>,
    ) -> Result<Vec<Option<Lease>>, StoreError> {
        let mut answers: Vec<Option<Lease>> = vec![None; leases.len()];
        let mut wanted: Vec<usize> = (0..leases.len()).collect();
        let (change, mut hopes) = (&change, true);
        for pause in PAUSES.into_iter().map(Some).chain([None]) {
            let work = Settle { statements: &self.statements, leases, wanted: &wanted, change, hopes };
            let found = self.runner.run(verb, &work).await?;
            let mut held = Vec::new();
            for (at, answer) in wanted.into_iter().zip(found) {
                match answer {
                    Answer::Done(lease) => answers[at] = Some(lease),
                    Answer::Lost => {}
                    Answer::Held => held.push(at),
                }
            }
            if held.is_empty() {
                return Ok(answers);
            }
            (wanted, hopes) = (held, false);
            if let Some(pause) = pause {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
        let (held, all) = (wanted.len(), leases.len());
        Err(StoreError::new(
            StoreErrorKind::Conflict,
            format!(
                "{verb} failed: somebody else has {held} of {all} rows locked, the others are written; it is tried again, see who changes rows of the outbox by hand"
            ),
        ))
    }
}

impl MySqlStore {
    /// Gives up what a claim took and is no message. If that fails its neighbours are delivered all the same.
    async fn give_up(&self, unreadable: Vec<Unreadable<Taken>>) {
        let give_up = |Unreadable { row: Taken { row, lease }, error }| (row, Bury { lease, error });
        let (rows, buries): (Vec<RowKey>, Vec<Bury>) = unreadable.into_iter().map(give_up).unzip();
        let work = GiveUp { statements: &self.statements, rows: &rows, buries: &buries };
        if !rows.is_empty()
            && let Err(error) = self.runner.run("bury", &work).await
        {
            not_given_up(&error);
        }
    }
}

fn settled(answers: Vec<Option<Lease>>) -> Vec<Settled> {
    answers.iter().map(|answer| if answer.is_some() { Settled::Done } else { Settled::LeaseLost }).collect()
}

#[async_trait]
impl Store for MySqlStore {
    fn capabilities(&self) -> Capabilities {
        let ours = self.layout.is_ours();
        Capabilities { rings: false, parallel_writers: true, server_clock: true, fair: ours, order_by_key: ours }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        self.check_lease(request.lease)?;
        self.check_walk("order per key", request.waits == Order::Key)?;
        self.check_walk("fair claims", matches!(request.order, ClaimOrder::Fair { .. }))?;
        let Some(within) = Within::of(&request.scope)? else { return Ok(Claimed::default()) };
        let claim = Claim { statements: &self.statements, request, within };
        let Outcome { claimed, unreadable } = self.runner.run("claim", &claim).await?;
        self.give_up(unreadable).await;
        Ok(claimed)
    }

    async fn extend(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Option<Lease>>, StoreError> {
        self.check_lease(lease)?;
        self.settle("extend", leases, Change::Extend(micros(lease))).await
    }

    async fn ack(&self, leases: &[Lease], then: Delivered) -> Result<Vec<Settled>, StoreError> {
        let change = match then {
            Delivered::Keep => Change::Ack,
            Delivered::Delete => Change::AckDelete,
        };
        Ok(settled(self.settle("ack", leases, change).await?))
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = nacks.iter().map(|nack| nack.lease).collect();
        Ok(settled(self.settle("nack", &leases, Change::Nack(nacks)).await?))
    }

    async fn bury(&self, buries: &[Bury]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = buries.iter().map(|bury| bury.lease).collect();
        Ok(settled(self.settle("bury", &leases, Change::Bury(buries)).await?))
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = releases.iter().map(|release| release.lease).collect();
        Ok(settled(self.settle("release", &leases, Change::Release(releases)).await?))
    }

    async fn sweep(&self, scope: &Scope, max_attempts: i32, limit: u32) -> Result<Swept, StoreError> {
        let Some(within) = Within::of(scope)? else { return Ok(Swept::default()) };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.runner.run("sweep", &Sweep { statements: &self.statements, within, max_attempts, limit }).await
    }

    async fn purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        self.layout().check_purge(purge)?;
        let Some(within) = Within::of(&purge.scope)? else { return Ok(0) };
        self.runner.run("purge", &Purging { statements: &self.statements, within, purge, note: None }).await
    }

    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        let Some(within) = Within::of(scope)? else { return Ok(Stats::default()) };
        self.runner.run("stats", &Counting { statements: &self.statements, within }).await
    }

    async fn next_due(&self, scope: &Scope) -> Result<Option<Duration>, StoreError> {
        let Some(within) = Within::of(scope)? else { return Ok(None) };
        let micros =
            self.runner.run("next_due", &LookingAhead { statements: &self.statements, within, since: None }).await?;
        Ok(micros.map(duration))
    }

    async fn next_coming(&self, scope: &Scope, since: Duration) -> Result<Option<Duration>, StoreError> {
        self.check_walk("order per key", true)?;
        let Some(within) = Within::of(scope)? else { return Ok(None) };
        let work = LookingAhead { statements: &self.statements, within, since: Some(micros(since)) };
        Ok(self.runner.run("next_due", &work).await?.map(duration))
    }

    async fn doorbell(&self, _scope: &Scope) -> Result<Box<dyn Doorbell>, StoreError> {
        Ok(Box::new(NoDoorbell))
    }

    async fn ring(&self, _scope: &Scope) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Microseconds as a duration; zero if they are negative.
pub(super) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Counts what waits, runs and is dead.
struct Counting<'a> {
    statements: &'a StoreStatements,
    within: Within,
}

impl Work for Counting<'_> {
    type Answer = Stats;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Stats, sqlx::Error> {
        let rows = self.within.fetch(connection, &self.statements.stats, 3, |_| {}, |_| {}).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let count = |at: usize| row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or(0));
        let oldest: Option<i64> = row.try_get(4)?;
        Ok(Stats {
            pending: count(0)?,
            due: count(1)?,
            processing: count(2)?,
            dead: count(3)?,
            oldest_due: oldest.map_or(Duration::ZERO, duration),
        })
    }
}

/// Finds out when the next row becomes eligible by the passing of time alone.
struct LookingAhead<'a> {
    statements: &'a StoreStatements,
    within: Within,
    /// Leaves out what has been eligible for longer than so many microseconds.
    since: Option<i64>,
}

impl Work for LookingAhead<'_> {
    /// Microseconds from now.
    type Answer = Option<i64>;

    async fn run(&self, connection: &mut MySqlConnection) -> Result<Option<i64>, sqlx::Error> {
        let (soonest, rows) = match (&self.statements.walk, self.since) {
            (Walk::Flat(flat), _) => {
                let rows = self.within.fetch(connection, &flat.next_due, 1, |_| {}, |_| {}).await?;
                let due_in: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?.flatten();
                let undated = self.within.fetch(connection, &flat.undated, 1, |_| {}, |_| {}).await?;
                let due_in = undated.first().map(|_| 0).or(due_in.map(|due_in| due_in.max(0)));
                (due_in, self.leases(connection).await?)
            }
            (Walk::Ours(ours), None) => (self.soonest(connection, ours).await?, self.leases(connection).await?),
            (Walk::Ours(ours), Some(since)) => {
                let before = |bound: &mut Bound| {
                    bound.add(since);
                };
                let soonest = self.soonest(connection, ours).await?;
                (soonest, self.within.fetch(connection, &ours.next_coming_lease, 1, before, |_| {}).await?)
            }
        };
        let lease: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(soonest.into_iter().chain(lease).min())
    }
}

impl LookingAhead<'_> {
    async fn soonest(
        &self,
        connection: &mut MySqlConnection,
        ours: &OurStatements,
    ) -> Result<Option<i64>, sqlx::Error> {
        let mut soonest: Option<i64> = None;
        for found in self.within.heads(connection, ours).await? {
            let due_in = match (self.since, self.within.tenant) {
                (Some(since), tenant) => coming(connection, ours, &found.namespace, tenant, since).await?,
                (None, None) => Some(found.due_in),
                (None, tenant) => head(connection, ours, &found.namespace, tenant).await?,
            };
            soonest = soonest.into_iter().chain(due_in).min();
        }
        Ok(soonest)
    }

    async fn leases(&self, connection: &mut MySqlConnection) -> Result<Vec<MySqlRow>, sqlx::Error> {
        self.within.fetch(connection, &self.statements.next_lease, 1, |_| {}, |_| {}).await
    }
}
