//! The relay's verbs on PostgreSQL, one statement each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::doorbell::Doorbell;
use postrider_core::lease::{Lease, RowAddress};
use postrider_core::sabotage::{self, Defect};
use postrider_core::store::{
    Bury, Capabilities, ClaimOrder, ClaimRequest, Claimed, Delivered, Finished, Nack, Order, Purge, Release, Scope,
    Settled, Stats, Store, StoreError, StoreErrorKind, Swept,
};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments, Encode, PgPool, Postgres, Row, Type};
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::claimed::{claimed, last_lane};
use super::doorbell::PgDoorbell;
use super::error::for_relay;
use super::held::{GIVEN_UP_PAUSE, Held};
use super::migrate;
use super::run::Runner;
use super::statements::{LeaseStatement, StoreStatements, bell};
use super::types::{Micros, address, address_text};
use crate::claimed::{Unreadable, not_given_up};
use crate::clock::{Clock, SystemClock, micros};
use crate::enqueue::Outbox;
use crate::layout::{Ability, ClaimBy, Layout, LayoutError, verdict};
use crate::migration::Pending;
use crate::names::Names;
use crate::sql::{Sql, fill};

/// An outbox in a PostgreSQL database, as a relay sees it. Cheap to clone.
///
/// It keeps up to four connections of the pool while it lives (to claim, settle, renew and maintain at the same time),
/// and a dispatcher opens one more outside of the pool to listen on.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pub(super) runner: Runner,
    pub(super) names: Names,
    pub(super) layout: Arc<Layout>,
    pub(super) statements: Arc<StoreStatements>,
    /// Where rows are claimed by locking them.
    held: Option<Held>,
    /// The table was looked at, and rows there have addresses of their own.
    pub(super) has_addresses: Arc<OnceCell<()>>,
}

impl PostgresStore {
    /// The outbox with these names in the pool's database. Opens no connection.
    pub fn new(pool: PgPool, names: Names) -> Self {
        Self::rendered(pool, Layout::postrider(names))
    }

    /// The outbox in a table of another shape. Opens no connection; refuses a layout that makes no sense.
    pub fn with_layout(pool: PgPool, layout: Layout) -> Result<Self, LayoutError> {
        layout.check()?;
        Ok(Self::rendered(pool, layout))
    }

    fn rendered(pool: PgPool, layout: Layout) -> Self {
        let statements = StoreStatements::render(&layout).into();
        let held = (layout.claim == ClaimBy::RowLock).then(|| Held::new(&pool, layout.lock_timeout, false));
        let names = layout.names.clone();
        Self {
            runner: Runner::new(pool),
            names,
            layout: layout.into(),
            statements,
            held,
            has_addresses: Arc::default(),
        }
    }

    /// Says that a pooler in transaction mode (PgBouncer) is between us and the database: statements then run
    /// in explicit transactions, none is prepared by name, and nothing depends on the session. The pool must be
    /// made with `statement_cache_capacity(0)`. There is no bell through such a pooler, so dispatchers poll.
    pub fn behind_pooler(mut self, yes: bool) -> Self {
        self.runner.behind_pooler = yes;
        self.held = self.held.map(|_| Held::new(&self.runner.pool, self.layout.lock_timeout, yes));
        self
    }

    /// Whether a pooler in transaction mode is in between.
    pub fn is_behind_pooler(&self) -> bool {
        self.runner.behind_pooler
    }

    /// Brings the schema up to date; safe to call from every process at start.
    pub async fn migrate(&self) -> Result<Vec<i32>, StoreError> {
        if migrate::adds_columns(&self.layout) {
            verdict::refuse_additions(self).await?;
        }
        migrate::run(&self.runner.pool, &self.layout).await
    }

    /// A transaction that writes, for [`AnyStore`](crate::AnyStore).
    pub(crate) async fn begin(&self) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, sqlx::Error> {
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

    /// What [`migrate`](Self::migrate) would run now; writes nothing.
    pub async fn pending(&self) -> Result<Vec<Pending>, StoreError> {
        migrate::pending(&self.runner.pool, &self.layout).await
    }

    /// The producer's side of the same outbox.
    pub fn outbox(&self) -> Outbox {
        Outbox::rendered((*self.layout).clone()).behind_pooler(self.runner.behind_pooler)
    }

    /// The connections, which the application may use too.
    pub fn pool(&self) -> &PgPool {
        &self.runner.pool
    }

    /// The statements it runs, for reviews and tests.
    pub fn statements(&self) -> &StoreStatements {
        &self.statements
    }

    /// Runs a settling statement; says of each lease whether it was live.
    async fn settle<B>(
        &self,
        verb: &'static str,
        sql: &LeaseStatement,
        leases: &[Lease],
        bind: B,
    ) -> Result<Vec<Settled>, StoreError>
    where
        B: Fn(&mut Bound, &[usize]) + Send + Sync,
    {
        if let Some(held) = &self.held {
            return held.settle(verb, &sql.by_id, leases, |which| settle_arguments(leases, which, false, &bind)).await;
        }
        answers(leases, &self.settle_rows(verb, sql, leases, bind).await?)
    }

    /// Runs a settling statement where the rows were, then by id for those that were not found there.
    async fn settle_rows<B>(
        &self,
        verb: &'static str,
        sql: &LeaseStatement,
        leases: &[Lease],
        bind: B,
    ) -> Result<Vec<PgRow>, StoreError>
    where
        B: Fn(&mut Bound, &[usize]) + Send + Sync,
    {
        let all: Vec<usize> = (0..leases.len()).collect();
        if self.layout.goes_by_turns() {
            return self.settle_some(verb, &sql.by_id, leases, &all, &bind).await;
        }
        let mut rows = self.settle_some(verb, &sql.by_address, leases, &all, &bind).await?;
        if rows.len() < leases.len() {
            let found = found(&rows)?;
            let moved: Vec<usize> = all.into_iter().filter(|at| !found.contains_key(&key(&leases[*at]))).collect();
            rows.extend(self.settle_some(verb, &sql.by_id, leases, &moved, &bind).await?);
        }
        Ok(rows)
    }

    async fn settle_some<B>(
        &self,
        verb: &'static str,
        sql: &Sql,
        leases: &[Lease],
        which: &[usize],
        bind: &B,
    ) -> Result<Vec<PgRow>, StoreError>
    where
        B: Fn(&mut Bound, &[usize]) + Send + Sync,
    {
        let turns = self.layout.goes_by_turns();
        let arguments = || settle_arguments(leases, which, turns, bind);
        match (&self.statements.entomb, verb) {
            (Some(entomb), "bury") => self.runner.fetch_and_entomb(verb, sql, arguments, entomb).await,
            _ => self.runner.fetch(verb, sql, arguments).await,
        }
    }

    /// The lease of a table that does not say until when its rows are locked is as long as the layout says.
    fn check_lease(&self, lease: Duration) -> Result<(), StoreError> {
        if self.layout.claim == ClaimBy::Lease || lease <= self.layout.lock_timeout {
            return Ok(());
        }
        Err(StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "the lease of {lease:?} is longer than the lock_timeout of {:?} of the layout {:?}, after which others take the message; shorten the lease or raise lock_timeout",
                self.layout.lock_timeout, self.layout.name
            ),
        ))
    }

    /// A statement that the table may not be made for.
    fn made_for<'a>(&self, sql: &'a Option<Sql>, what: &str) -> Result<&'a Sql, StoreError> {
        sql.as_ref().ok_or_else(|| {
            let text = format!("the layout {:?} cannot do {what}: its table lacks the columns or the indexes; see postrider layout check", self.layout.name);
            StoreError::new(StoreErrorKind::Refused, text)
        })
    }

    async fn claim_held(
        &self,
        held: &Held,
        sql: &Sql,
        arguments: PgArguments,
        request: &ClaimRequest,
    ) -> Result<Claimed, StoreError> {
        let Some(mut begun) = held.begin().await? else { return Ok(Claimed::default()) };
        let query =
            sqlx::query_with(sqlx::AssertSqlSafe(sql.clone()), arguments).persistent(!self.runner.behind_pooler);
        let rows = begun.fetch(query).await;
        let read = rows.and_then(|rows| claimed(&rows, request.worker, request.waits));
        let (mut messages, mut unreadable) = match read {
            Ok(read) => read,
            Err(error) => {
                begun.give_up().await;
                return Err(for_relay("claim", error));
            }
        };
        if messages.is_empty() && unreadable.is_empty() {
            begun.give_up().await;
            return Ok(Claimed::default());
        }
        if self.layout.attempts.is_none() {
            for message in &mut messages {
                message.attempts += held.attempts(message.id);
                message.lease.attempt = message.attempts;
            }
        }
        let leases = messages.iter_mut().map(|message| &mut message.lease);
        held.keep(begun, leases.chain(unreadable.iter_mut().map(|row| &mut row.row)));
        self.give_up(unreadable).await;
        Ok(Claimed { messages, last_lane: None })
    }

    /// Gives up what a claim took and is no message. If that fails its neighbours are delivered all the same.
    async fn give_up(&self, unreadable: Vec<Unreadable<Lease>>) {
        let buries: Vec<Bury> =
            unreadable.into_iter().map(|Unreadable { row: lease, error }| Bury { lease, error }).collect();
        if !buries.is_empty()
            && let Err(error) = self.bury(&buries).await
        {
            not_given_up(&error);
        }
    }
}

/// The parameters that every settling statement begins with, and its own after them. Where claims go by turns the turn takes the place
/// of the worker, whom the row does not know, and rows are found by their ids.
fn settle_arguments<B>(leases: &[Lease], which: &[usize], turns: bool, bind: &B) -> Result<PgArguments, sqlx::Error>
where
    B: Fn(&mut Bound, &[usize]),
{
    let address = |lease: &Lease| if turns { RowAddress::default() } else { lease.address };
    let worker = |lease: &Lease| if turns { Uuid::from_u128(lease.address.0.into()) } else { lease.worker };
    let mut bound = Bound::default();
    bound.add(which.iter().map(|at| address_text(address(&leases[*at]))).collect::<Vec<_>>());
    bound.add(which.iter().map(|at| leases[*at].id).collect::<Vec<_>>());
    bound.add(which.iter().map(|at| worker(&leases[*at])).collect::<Vec<_>>());
    bound.add(which.iter().map(|at| leases[*at].attempt).collect::<Vec<_>>());
    bind(&mut bound, which);
    bound.finish()
}

/// Arguments for a statement; a value that cannot be encoded is reported when the statement is run.
#[derive(Default)]
pub(super) struct Bound {
    arguments: PgArguments,
    failed: Option<sqlx::error::BoxDynError>,
}

impl Bound {
    pub fn add<'q, T: Encode<'q, Postgres> + Type<Postgres> + 'q>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.arguments.add(value) {
            self.failed.get_or_insert(error);
        }
        self
    }

    pub fn scope(&mut self, scope: &Scope) -> &mut Self {
        self.add(scope.namespaces.clone()).add(scope.tenant.filter(|_| !sabotage::has(Defect::TenantIgnored)))
    }

    pub fn finish(self) -> Result<PgArguments, sqlx::Error> {
        match self.failed {
            None => Ok(self.arguments),
            Some(error) => Err(sqlx::Error::Encode(error)),
        }
    }
}

pub(super) fn scoped(
    scope: &Scope,
    rest: impl Fn(&mut Bound) + Send + Sync,
) -> impl Fn() -> Result<PgArguments, sqlx::Error> + Send + Sync {
    move || {
        let mut bound = Bound::default();
        bound.scope(scope);
        rest(&mut bound);
        bound.finish()
    }
}

/// Which rows were found, by id and attempt: two attempts of one row may be in the same batch.
fn found(rows: &[PgRow]) -> Result<HashMap<(Uuid, i32), usize>, StoreError> {
    let ids = rows.iter().enumerate().map(|(at, row)| Ok(((row.try_get(0)?, row.try_get(1)?), at)));
    ids.collect::<Result<_, _>>().map_err(|error| for_relay("settle", error))
}

fn key(lease: &Lease) -> (Uuid, i32) {
    (lease.id, lease.attempt)
}

fn answers(leases: &[Lease], rows: &[PgRow]) -> Result<Vec<Settled>, StoreError> {
    // A row answers for one lease at most, so as many rows as leases are all of them.
    if rows.len() == leases.len() {
        return Ok(vec![Settled::Done; leases.len()]);
    }
    let found = found(rows)?;
    let answer = |lease: &Lease| if found.contains_key(&key(lease)) { Settled::Done } else { Settled::LeaseLost };
    Ok(leases.iter().map(answer).collect())
}

#[async_trait]
impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            rings: !self.runner.behind_pooler,
            parallel_writers: true,
            server_clock: true,
            fair: self.layout.can(Ability::FairShares),
            order_by_key: self.layout.can(Ability::OrderByKey),
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        self.check_lease(request.lease)?;
        self.refuse_parts().await?;
        let statements = &self.statements;
        let sql = match (&request.order, request.waits) {
            (ClaimOrder::Due, Order::None) => &statements.claim,
            (ClaimOrder::Suspects, Order::None) => &statements.claim_suspects,
            (ClaimOrder::Due, Order::Key) => self.made_for(&statements.claim_ordered, "order per key")?,
            (ClaimOrder::Fair { .. }, Order::None) => self.made_for(&statements.claim_fair, "fair claims")?,
            (ClaimOrder::Fair { .. }, Order::Key) => self.made_for(&statements.claim_fair_ordered, "order per key")?,
            (ClaimOrder::Suspects, Order::Key) => self.made_for(&statements.claim_suspects_ordered, "order per key")?,
        };
        let limit = match &self.held {
            Some(held) => request.limit.min(self.layout.batch).min(held.room()),
            None => request.limit,
        };
        if self.held.is_some() && limit == 0 {
            return Ok(Claimed::default());
        }
        let left_alone = self.held.as_ref().map(Held::left_alone).unwrap_or_default();
        let arguments = scoped(&request.scope, |bound| {
            bound.add(request.max_attempts).add(i64::from(limit)).add(request.worker).add(lease_micros(request.lease));
            if request.order != ClaimOrder::Suspects {
                // Never below one, because the first row is always taken.
                bound.add(i64::try_from(request.max_bytes.max(1)).unwrap_or(i64::MAX));
            }
            if request.order == ClaimOrder::Due && request.waits == Order::Key {
                bound.add(i64::from(request.followers)).add(request.thorough);
            }
            if request.order == ClaimOrder::Due && !self.layout.indexed_like_ours {
                bound.add(left_alone.clone());
            }
            if let ClaimOrder::Fair { after } = &request.order {
                bound.add(after.as_ref().map_or("", |lane| &lane.namespace).to_owned());
                bound.add(after.as_ref().map_or("", |lane| &lane.topic).to_owned());
                bound.add(after.as_ref().map_or(Uuid::nil(), |lane| lane.tenant));
            }
        });
        if let Some(held) = &self.held {
            // Nobody died on a row that is locked by its connection.
            if request.order == ClaimOrder::Suspects {
                return Ok(Claimed::default());
            }
            let arguments = arguments().map_err(|error| for_relay("claim", error))?;
            return self.claim_held(held, sql, arguments, request).await;
        }
        let rows = self.runner.fetch("claim", sql, arguments).await?;
        let last_lane = match &request.order {
            ClaimOrder::Fair { .. } => last_lane(&rows),
            _ => Ok(None),
        };
        let failed = |error| for_relay("claim", error);
        let (messages, unreadable) = claimed(&rows, request.worker, request.waits).map_err(failed)?;
        self.give_up(unreadable).await;
        Ok(Claimed { messages, last_lane: last_lane.map_err(failed)? })
    }

    async fn extend(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Option<Lease>>, StoreError> {
        self.check_lease(lease)?;
        if let Some(held) = &self.held {
            let renewed = held.renew(leases).await;
            return Ok(leases.iter().zip(renewed).map(|(lease, held)| held.then_some(*lease)).collect());
        }
        let duration = lease_micros(lease);
        let bind = |bound: &mut Bound, _: &[usize]| {
            bound.add(duration);
        };
        let rows = self.settle_rows("extend", &self.statements.extend, leases, bind).await?;
        let found = found(&rows)?;
        let address_of = |lease: &Lease| -> Result<Option<RowAddress>, sqlx::Error> {
            found.get(&key(lease)).map(|at| Ok(address(rows[*at].try_get(2)?))).transpose()
        };
        let renewed = leases.iter().map(|lease| Ok(address_of(lease)?.map(|address| Lease { address, ..*lease })));
        renewed.collect::<Result<_, _>>().map_err(|error| for_relay("extend", error))
    }

    async fn ack(&self, leases: &[Lease], then: Delivered) -> Result<Vec<Settled>, StoreError> {
        if let Some(held) = &self.held {
            let sql = match then {
                Delivered::Keep if self.layout.keeps_delivered() => &self.statements.ack,
                _ => &self.statements.ack_delete,
            };
            let settled = self.settle("ack", sql, leases, |_, _| {}).await?;
            held.finished(leases, &settled);
            return Ok(settled);
        }
        if then == Delivered::Keep {
            return self.settle("ack", &self.statements.ack, leases, |_, _| {}).await;
        }
        let all: Vec<usize> = (0..leases.len()).collect();
        let sql = match self.layout.goes_by_turns() {
            true => &self.statements.ack_delete.by_id,
            false => &self.statements.ack_delete.by_address,
        };
        let mut rows = self.settle_some("ack", sql, leases, &all, &|_: &mut Bound, _: &[usize]| {}).await?;
        if rows.len() < leases.len() {
            // Rows with a dedupe key stay; rows that moved are kept too, and left to the purge.
            let deleted = found(&rows)?;
            let kept: Vec<Lease> = leases.iter().filter(|lease| !deleted.contains_key(&key(lease))).copied().collect();
            rows.extend(self.settle_rows("ack", &self.statements.ack, &kept, |_, _| {}).await?);
        }
        answers(leases, &rows)
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = nacks.iter().map(|nack| nack.lease).collect();
        let bind = |bound: &mut Bound, which: &[usize]| {
            bound.add(which.iter().map(|at| micros(nacks[*at].delay)).collect::<Vec<_>>());
            bound.add(which.iter().map(|at| nacks[*at].error.clone()).collect::<Vec<_>>());
        };
        let settled = self.settle("nack", &self.statements.nack, &leases, bind).await?;
        if let Some(held) = &self.held {
            nacks.iter().for_each(|nack| held.later(&nack.lease, nack.delay));
        }
        Ok(settled)
    }

    async fn bury(&self, buries: &[Bury]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = buries.iter().map(|bury| bury.lease).collect();
        let bind = |bound: &mut Bound, which: &[usize]| {
            bound.add(which.iter().map(|at| buries[*at].error.clone()).collect::<Vec<_>>());
        };
        let settled = self.settle("bury", &self.statements.bury, &leases, bind).await?;
        match &self.held {
            Some(held) if !self.layout.can(Ability::Dead) => {
                for Bury { lease, error } in buries {
                    tracing::error!(id = %lease.id, %error, again_in = ?GIVEN_UP_PAUSE, "a message was given up, and its table has no place to say so; it stays");
                    held.later(lease, GIVEN_UP_PAUSE);
                }
            }
            Some(held) => held.finished(&leases, &settled),
            None => {}
        }
        Ok(settled)
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = releases.iter().map(|release| release.lease).collect();
        let bind = |bound: &mut Bound, which: &[usize]| {
            bound.add(which.iter().map(|at| micros(releases[*at].delay)).collect::<Vec<_>>());
            bound.add(which.iter().map(|at| releases[*at].error.clone()).collect::<Vec<_>>());
        };
        let settled = self.settle("release", &self.statements.release, &leases, bind).await?;
        if let Some(held) = &self.held {
            let delayed = releases.iter().filter(|release| !release.delay.is_zero());
            // The attempt is given back.
            delayed.for_each(|release| {
                held.later(&Lease { attempt: release.lease.attempt - 1, ..release.lease }, release.delay)
            });
        }
        Ok(settled)
    }

    async fn sweep(&self, scope: &Scope, max_attempts: i32, limit: u32) -> Result<Swept, StoreError> {
        if self.held.is_some() {
            return Ok(Swept::default());
        }
        self.refuse_parts().await?;
        let arguments = scoped(scope, |bound| {
            bound.add(max_attempts).add(i64::from(limit));
        });
        let rows = match &self.statements.entomb {
            Some(entomb) => self.runner.fetch_and_entomb("sweep", &self.statements.sweep, arguments, entomb).await?,
            None => self.runner.fetch("sweep", &self.statements.sweep, arguments).await?,
        };
        let read = || {
            let buried = rows.iter().map(|row| row.try_get::<Option<Uuid>, _>(0));
            let buried = buried.filter_map(Result::transpose).collect::<Result<_, sqlx::Error>>()?;
            let suspects = rows.first().map(|row| row.try_get(1)).transpose()?.unwrap_or(false);
            Ok(Swept { buried, suspects })
        };
        read().map_err(|error| for_relay("sweep", error))
    }

    async fn purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        self.layout.check_purge(purge)?;
        self.refuse_parts().await?;
        let sql = match purge.finished {
            Finished::Delivered => &self.statements.purge_delivered,
            Finished::Dead => &self.statements.purge_dead,
        };
        let arguments = scoped(&purge.scope, |bound| {
            bound.add(micros(purge.older_than)).add(i64::from(purge.limit));
        });
        let deleted = self.runner.fetch("purge", sql, arguments).await?;
        Ok(deleted.len() as u64)
    }

    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        let rows = self.runner.fetch("stats", &self.statements.stats, scoped(scope, |_| {})).await?;
        let row = only("stats", &rows)?;
        let read = || {
            let count = |at: usize| row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or(0));
            let (oldest, now): (Option<Micros>, Micros) = (row.try_get(4)?, row.try_get(5)?);
            Ok(Stats {
                pending: count(0)?,
                due: count(1)?,
                processing: count(2)?,
                dead: count(3)?,
                oldest_due: oldest.map_or(Duration::ZERO, |oldest| now.since(oldest)),
            })
        };
        read().map_err(|error| for_relay("stats", error))
    }

    async fn oldest_xmin_age(&self) -> Result<Option<Duration>, StoreError> {
        let sql: Sql = fill(include_str!("../../sql/postgres/oldest_xmin_age.sql"), []).into();
        let rows = self.runner.fetch("oldest_xmin_age", &sql, || Ok(PgArguments::default())).await?;
        let micros: i64 =
            only("oldest_xmin_age", &rows)?.try_get(0).map_err(|error| for_relay("oldest_xmin_age", error))?;
        Ok(Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
    }

    async fn next_due(&self, scope: &Scope) -> Result<Option<Duration>, StoreError> {
        if let Some(held) = &self.held {
            return Ok(held.next_due());
        }
        until(&self.runner.fetch("next_due", &self.statements.next_due, scoped(scope, |_| {})).await?)
    }

    async fn next_coming(&self, scope: &Scope, since: Duration) -> Result<Option<Duration>, StoreError> {
        let arguments = scoped(scope, |bound| {
            bound.add(micros(since));
        });
        let sql = self.made_for(&self.statements.next_coming, "order per key")?;
        until(&self.runner.fetch("next_due", sql, arguments).await?)
    }

    async fn doorbell(&self, scope: &Scope) -> Result<Box<dyn Doorbell>, StoreError> {
        Ok(Box::new(PgDoorbell::new(self.runner.clone(), self.statements.clone(), bell(&self.names), scope)))
    }

    async fn ring(&self, _scope: &Scope) -> Result<(), StoreError> {
        self.runner.ring(&self.statements.doorbell_ring, "").await
    }
}

/// How long until the time that a statement answered, which also says what time it is.
fn until(rows: &[PgRow]) -> Result<Option<Duration>, StoreError> {
    let row = only("next_due", rows)?;
    let read = || {
        let (due_at, now): (Option<Micros>, Micros) = (row.try_get(0)?, row.try_get(1)?);
        Ok(due_at.map(|due_at| due_at.since(now)))
    };
    read().map_err(|error| for_relay("next_due", error))
}

pub(super) fn only<'a>(verb: &str, rows: &'a [PgRow]) -> Result<&'a PgRow, StoreError> {
    rows.first()
        .ok_or_else(|| StoreError::new(StoreErrorKind::Refused, format!("{verb} failed: the database answered no row")))
}

/// A lease as the statements take it: how long it is, so that the database's clock decides when it ends.
fn lease_micros(lease: Duration) -> i64 {
    let from = if sabotage::has(Defect::WorkersClock) { SystemClock.now_micros() } else { 0 };
    from.saturating_add(micros(lease))
}
