//! The relay's verbs on SQLite, one short transaction each, and none where a plain read says that there is nothing to do.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::doorbell::Doorbell;
use postrider_core::lease::Lease;
use postrider_core::store::{
    Bury, Capabilities, ClaimOrder, ClaimRequest, Claimed, ClaimedMessage, Delivered, Finished, LARGEST_CLAIM, Nack,
    Order, Purge, Release, Scope, Settled, Stats, Store, StoreError, StoreErrorKind, Swept,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous};
use sqlx::{Connection, Row, SqlitePool};
use uuid::Uuid;

use super::claimed::{claimed, pick_fair};
use super::clock::{Mark, ago, not_after};
use super::doorbell::{Neighbours, SqliteDoorbell};
use super::error::for_relay;
use super::layout::DIALECT;
use super::migrate;
use super::run::{Runner, when_free};
use super::settings;
use super::statements::{Padded, Step, StoreStatements};
use super::types::{Bound, address, json, number, number_and_turn, read_id};
use crate::claimed::{Unreadable, not_given_up};
use crate::clock::{Clock, SystemClock, between, micros};
use crate::enqueue::Outbox;
use crate::layout::{ClaimBy, Layout, LayoutError, verdict};
use crate::migration::Pending;
use crate::names::Names;

/// How long a connection of [`SqliteStore::open`] waits for the write lock before it answers that the file is busy.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How many connections the pool of [`SqliteStore::open`] has at most.
const CONNECTIONS: u32 = 10;
/// How many rows SQLite's thread may be ahead of who reads them.
const ROW_BUFFER: usize = 1_024;

/// An outbox in an SQLite file, as a relay sees it. Cheap to clone.
///
/// The file must be on a local disk and in WAL mode with `synchronous=FULL`; both are checked when the store is first
/// used. SQLite has one writer at a time, so producers should begin their transactions with the write lock, and keep
/// them short:
///
/// ```
/// # use postrider_store::{EnqueueError, SqliteStore};
/// # async fn place(store: SqliteStore, message: postrider_core::Message) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = store.outbox();
/// let mut transaction = store.pool().begin_with("begin immediate").await?;
/// // the change itself
/// outbox.enqueue(&mut transaction, message).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// With a plain `begin`, a transaction that reads before it writes may find that somebody else wrote meanwhile, and has
/// to be tried again as a whole ([`EnqueueError::is_retryable`](crate::EnqueueError::is_retryable)).
///
/// A store keeps up to four connections of the pool while it lives, and a dispatcher opens one more outside of the pool
/// to watch the file. Take the [`outbox`](Self::outbox) from the store that the dispatcher runs on, if both are in one
/// process: then a message is picked up within about a millisecond of its commit, and otherwise within about ten.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    pub(super) runner: Runner,
    pub(super) names: Names,
    neighbours: Arc<Neighbours>,
}

impl SqliteStore {
    /// The outbox with these names in the pool's database. Opens no connection.
    ///
    /// Make the pool from [`pool_options`](Self::pool_options): without what they set, a full disk may leave a
    /// connection in the pool that can begin no transaction any more, or never ends one and holds the write lock.
    pub fn new(pool: SqlitePool, names: Names) -> Self {
        Self::over(pool, Layout::postrider(names).into(), Arc::new(SystemClock))
    }

    /// The outbox in a table of another shape. Opens no connection; refuses a layout that makes no sense, and one that only
    /// PostgreSQL can have. Times in the table are microseconds since 1970 in UTC, as in our own, and it must not be made
    /// `without rowid`.
    pub fn with_layout(pool: SqlitePool, layout: Layout) -> Result<Self, LayoutError> {
        layout.check()?;
        layout.check_for(&DIALECT)?;
        Ok(Self::over(pool, layout.into(), Arc::new(SystemClock)))
    }

    fn over(pool: SqlitePool, layout: Arc<Layout>, clock: Arc<dyn Clock>) -> Self {
        let neighbours = Neighbours::new(clock.clone()).into();
        Self { names: layout.names.clone(), runner: Runner::new(pool, layout, clock), neighbours }
    }

    /// Options for a pool of the application's own, to be given to [`new`](Self::new).
    ///
    /// When a disk is full or fails, SQLite rolls a transaction back by itself. sqlx does not notice, and believes that
    /// the connection is in a transaction: the next one would be a savepoint in it, which nobody ends. So a connection
    /// that comes back in that state is closed.
    ///
    /// ```
    /// # use postrider_store::{Names, SqliteStore};
    /// # use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
    /// # async fn open() -> Result<SqliteStore, sqlx::Error> {
    /// let file = SqliteConnectOptions::new().filename("shop.db").create_if_missing(true);
    /// let file = file.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    /// let pool = SqliteStore::pool_options().max_connections(20).connect_with(file).await?;
    /// let store = SqliteStore::new(pool, Names::default());
    /// # Ok(store)
    /// # }
    /// ```
    pub fn pool_options() -> SqlitePoolOptions {
        SqlitePoolOptions::new().after_release(|connection, _| {
            Box::pin(async move {
                // A transaction that was dropped is rolled back behind our back; asking waits until that is done.
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        })
    }

    /// Opens a file, and makes it if it is missing, with the settings that an outbox needs; the names are the default
    /// ones. [`pool`](Self::pool) is there for the application too.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(SqliteConnectOptions::new().filename(path), Names::default()).await
    }

    /// Opens a file with other options and names. The settings that an outbox needs replace what the options say: WAL
    /// mode, `synchronous=FULL`, and a busy time-out of five seconds. For others make a pool from
    /// [`pool_options`](Self::pool_options) and use [`new`](Self::new).
    pub async fn open_with(options: SqliteConnectOptions, names: Names) -> Result<Self, StoreError> {
        Self::open_as(options.create_if_missing(true), names, CONNECTIONS).await
    }

    /// [`open_with`](Self::open_with) for a table of another shape, see [`with_layout`](Self::with_layout).
    pub async fn open_with_layout(options: SqliteConnectOptions, layout: Layout) -> Result<Self, StoreError> {
        Self::open_layout_as(options.create_if_missing(true), layout, CONNECTIONS).await
    }

    /// Opens a file that is made only if the options say so, with so many connections.
    pub(crate) async fn open_as(
        options: SqliteConnectOptions,
        names: Names,
        connections: u32,
    ) -> Result<Self, StoreError> {
        Self::open_layout_as(options, Layout::postrider(names), connections).await
    }

    /// The same for a table of another shape.
    pub(crate) async fn open_layout_as(
        options: SqliteConnectOptions,
        layout: Layout,
        connections: u32,
    ) -> Result<Self, StoreError> {
        settings::names_are_plain(&layout.names)?;
        let refused = |error: LayoutError| StoreError::new(StoreErrorKind::Refused, error.to_string());
        layout.check().map_err(refused)?;
        layout.check_for(&DIALECT).map_err(refused)?;
        let options = options
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .row_buffer_size(ROW_BUFFER);
        let connect = || Self::pool_options().max_connections(connections).connect_with(options.clone());
        // Who switches a new file to WAL mode is refused at once while others do the same, whatever the busy time-out.
        let pool = when_free(connect).await.map_err(|error| for_relay("open the file", error))?;
        let store = Self::over(pool, layout.into(), Arc::new(SystemClock));
        store.runner.check_settings().await?;
        Ok(store)
    }

    /// Accepts `synchronous=NORMAL`: after a power failure the last commits may be gone, the producers' as well as the
    /// relays', so that delivered messages are sent again and changes that were told to others never happened here.
    pub fn relaxed_durability(mut self, yes: bool) -> Self {
        self.runner.relaxed = yes;
        self
    }

    /// Replaces the clock, for tests.
    pub fn with_clock(self, clock: impl Clock) -> Self {
        let relaxed = self.runner.relaxed;
        Self::over(self.runner.pool, self.runner.layout, Arc::new(clock)).relaxed_durability(relaxed)
    }

    /// Brings the schema up to date; safe to call from every process at start.
    pub async fn migrate(&self) -> Result<Vec<i32>, StoreError> {
        self.runner.check_settings().await?;
        if migrate::adds_columns(&self.runner.layout) {
            verdict::refuse_additions(self).await?;
        }
        migrate::run(&self.runner.pool, &self.runner.layout).await
    }

    /// A transaction that writes, for [`AnyStore`](crate::AnyStore).
    pub(crate) async fn begin(&self) -> Result<sqlx::Transaction<'static, sqlx::Sqlite>, sqlx::Error> {
        self.runner.pool.begin_with("begin immediate").await
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
        &self.runner.layout
    }

    /// What [`migrate`](Self::migrate) would run now; writes nothing.
    pub async fn pending(&self) -> Result<Vec<Pending>, StoreError> {
        migrate::pending(&self.runner.pool, &self.runner.layout).await
    }

    /// The producer's side of the same outbox. It tells this store's sleeping dispatchers when a commit is near.
    pub fn outbox(&self) -> Outbox {
        Outbox::rendered((*self.runner.layout).clone()).beside(self.neighbours.clone())
    }

    /// The connections, which the application may use too.
    pub fn pool(&self) -> &SqlitePool {
        &self.runner.pool
    }

    /// The statements it runs, for reviews and tests.
    pub fn statements(&self) -> &StoreStatements {
        &self.runner.statements
    }

    /// Looks whether a claim would find something, without the write lock; answers the namespaces with due rows, and
    /// whether leases have run out.
    async fn look(&self, request: &ClaimRequest) -> Result<Look, StoreError> {
        let sql = match &request.order {
            ClaimOrder::Suspects => &self.runner.statements.look_suspects,
            _ => &self.runner.statements.look,
        };
        let failed = |error| for_relay("claim", error);
        let bind = |bound: &mut Bound, now: i64| {
            bound.scope(&request.scope).add(request.max_attempts).add(now);
        };
        self.runner.heed_clock().await?;
        let rows = self.runner.read("claim", sql, bind).await?;
        let look = Look::read(only("claim", &rows)?).map_err(failed)?;
        // Read after the answer came: somebody may have noted a later time than ours while we asked.
        let now = self.runner.clock.now_micros();
        if matches!(Mark::compare(look.seen, now), Mark::Repair(_)) {
            self.runner.repair().await?;
        } else if look.newest.is_some_and(|newest| newest > not_after(now)) {
            self.runner.repair_fresh_rows().await?;
        } else {
            return Ok(look);
        }
        let rows = self.runner.read("claim", sql, bind).await?;
        Look::read(only("claim", &rows)?).map_err(failed)
    }

    async fn claim_fair(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        let ClaimOrder::Fair { after } = &request.order else { return Ok(Claimed::default()) };
        let failed = |error| for_relay("claim", error);
        let statements = &self.runner.statements;
        let step = match request.waits {
            Order::None => self.made_for(&statements.claim_fair, "fair claims")?,
            Order::Key => self.made_for(&statements.claim_fair_ordered, "order per key")?,
        };
        let mut writing = self.runner.begin("claim").await?;
        let mut bound = request_bound(request, writing.now);
        let (namespace, topic) = after.as_ref().map_or(("", ""), |lane| (&lane.namespace, &lane.topic));
        bound.add(namespace.to_owned()).add(topic.to_owned()).add(after.as_ref().map(|lane| lane.tenant.hyphenated()));
        let rows = writing.run(step, &mut bound).await.map_err(failed)?;
        let pick = pick_fair(&rows, request).map_err(failed)?;
        if pick.numbers.is_empty() {
            writing.commit().await.map_err(failed)?;
            return Ok(Claimed { messages: Vec::new(), last_lane: pick.last_lane });
        }
        let mut bound = request_bound(request, writing.now);
        bound.id(request.worker).add(micros(request.lease)).add(0_i64).add(json(pick.numbers));
        let now = writing.now;
        let rows = writing.finish(&statements.claim_picked, &mut bound).await.map_err(failed)?;
        let messages = self.readable(&rows, request.worker, now).await?;
        Ok(Claimed { messages, last_lane: pick.last_lane })
    }

    /// The messages of a claim. Rows that are none are given up; if that fails their neighbours are delivered all the same.
    async fn readable(
        &self,
        rows: &[SqliteRow],
        worker: Uuid,
        claimed_at: i64,
    ) -> Result<Vec<ClaimedMessage>, StoreError> {
        let read = claimed(rows, worker, claimed_at, self.runner.layout.goes_by_turns());
        let (messages, unreadable) = read.map_err(|error| for_relay("claim", error))?;
        if !unreadable.is_empty()
            && let Err(error) = self.give_up(&unreadable, worker).await
        {
            not_given_up(&error);
        }
        Ok(messages)
    }

    async fn give_up(&self, unreadable: &[Unreadable<(i64, i64)>], worker: Uuid) -> Result<(), StoreError> {
        let failed = |error| for_relay("bury", error);
        let statements = &self.runner.statements;
        let mut writing = self.runner.begin("bury").await?;
        let given =
            unreadable.iter().map(|Unreadable { row: (seq, attempt), error }| serde_json::json!([seq, attempt, error]));
        let mut bound = Bound::default();
        bound.add(writing.now).add(json(given)).id(worker);
        let rows = writing.run(&statements.bury_unreadable, &mut bound).await.map_err(failed)?;
        if let Some(entomb) = &statements.entomb {
            let numbers = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>().map_err(failed)?;
            let mut bound = Bound::default();
            bound.add(writing.now).add(json(numbers));
            writing.run(entomb, &mut bound).await.map_err(failed)?;
        }
        writing.commit().await.map_err(failed)
    }

    /// Runs settling statements, one after the other, for all leases in one transaction; `head` are its parameters after the time, and `each`
    /// adds what a lease has beyond its fence. Answers the rows' numbers by id and attempt: two attempts of one row may be
    /// in the same batch.
    async fn settle<B>(
        &self,
        verb: &'static str,
        statements: &[&Padded],
        leases: &[Lease],
        head: &[i64],
        each: B,
    ) -> Result<HashMap<(Uuid, i32), i64>, StoreError>
    where
        B: Fn(&mut Bound, usize) + Send + Sync,
    {
        let mut found = HashMap::with_capacity(leases.len());
        if leases.is_empty() {
            return Ok(found);
        }
        let turns = self.runner.layout.goes_by_turns();
        let failed = |error| for_relay(verb, error);
        let mut writing = Some(self.runner.begin(verb).await?);
        let all: Vec<usize> = (0..leases.len()).collect();
        let mut portions = Vec::new();
        for sql in statements {
            portions.extend(sql.split(&all));
        }
        // Those that are given up may have to be marked once more, before the commit.
        let entomb = self.runner.statements.entomb.as_ref().filter(|_| verb == "bury");
        let last = if entomb.is_some() { portions.len() } else { portions.len().saturating_sub(1) };
        for (turn, (step, portion)) in portions.into_iter().enumerate() {
            let Some(mut open) = writing.take() else { break };
            let mut bound = Bound::default();
            bound.add(open.now);
            for value in head {
                bound.add(*value);
            }
            for at in portion {
                let lease = &leases[*at];
                match turns {
                    true => {
                        let (number, turn) = number_and_turn(lease.address);
                        bound.add(number).id(lease.id).add(turn).add(lease.attempt)
                    }
                    false => bound.add(number(lease.address)).id(lease.id).id(lease.worker).add(lease.attempt),
                };
                each(&mut bound, *at);
            }
            let rows = if turn < last {
                let rows = open.run(step, &mut bound).await;
                writing = Some(open);
                rows
            } else {
                open.finish(step, &mut bound).await
            };
            for row in rows.map_err(failed)? {
                let key = (read_id(&row, 0).map_err(failed)?, row.try_get(1).map_err(failed)?);
                found.insert(key, row.try_get(2).map_err(failed)?);
            }
        }
        if let (Some(entomb), Some(open)) = (entomb, writing) {
            let numbers: Vec<i64> = found.values().copied().collect();
            let mut bound = Bound::default();
            bound.add(open.now).add(json(numbers));
            open.finish(entomb, &mut bound).await.map_err(failed)?;
        }
        Ok(found)
    }

    /// The statement for a purge, if there is something to purge; looked for without the write lock.
    pub(super) async fn purge_step(&self, purge: &Purge) -> Result<Option<&Step>, StoreError> {
        self.runner.layout.check_purge(purge)?;
        let statements = &self.runner.statements;
        let (look, step) = match purge.finished {
            Finished::Delivered => (&statements.purge_delivered_look, &statements.purge_delivered),
            Finished::Dead => (&statements.purge_dead_look, &statements.purge_dead),
        };
        let bind = |bound: &mut Bound, now: i64| {
            bound.scope(&purge.scope).add(ago(now, purge.older_than));
        };
        let rows = self.runner.read("purge", look, bind).await?;
        let any: bool = only("purge", &rows)?.try_get(0).map_err(|error| for_relay("purge", error))?;
        Ok(any.then_some(step))
    }

    /// Sweeps, and marks once more what was given up, in one transaction.
    async fn sweep_and_entomb<A>(&self, arguments: A, entomb: &Step) -> Result<Vec<SqliteRow>, StoreError>
    where
        A: Fn(&mut Bound, i64) + Send + Sync,
    {
        let failed = |error| for_relay("sweep", error);
        let mut writing = self.runner.begin("sweep").await?;
        let mut bound = Bound::default();
        arguments(&mut bound, writing.now);
        let rows = writing.run(&self.runner.statements.sweep, &mut bound).await.map_err(failed)?;
        let numbers = rows.iter().map(|row| row.try_get(1)).collect::<Result<Vec<i64>, _>>().map_err(failed)?;
        let mut bound = Bound::default();
        bound.add(writing.now).add(json(numbers));
        writing.finish(entomb, &mut bound).await.map_err(failed)?;
        Ok(rows)
    }

    /// The lease of a table that does not say until when its rows are locked is as long as the layout says.
    fn check_lease(&self, lease: Duration) -> Result<(), StoreError> {
        let layout = &self.runner.layout;
        match layout.claim == ClaimBy::Lease || lease <= layout.lock_timeout {
            true => Ok(()),
            false => Err(layout.lease_too_long(lease)),
        }
    }

    /// What the table may not be made for.
    fn made_for<'a, T>(&self, made: &'a Option<T>, what: &str) -> Result<&'a T, StoreError> {
        made.as_ref().ok_or_else(|| self.runner.layout.not_made_for(what, DIALECT.name))
    }

    /// Runs one statement in a transaction of its own.
    async fn write<A>(&self, verb: &'static str, step: &Step, arguments: A) -> Result<Vec<SqliteRow>, StoreError>
    where
        A: Fn(&mut Bound, i64) + Send + Sync,
    {
        let writing = self.runner.begin(verb).await?;
        let mut bound = Bound::default();
        arguments(&mut bound, writing.now);
        writing.finish(step, &mut bound).await.map_err(|error| for_relay(verb, error))
    }
}

/// What there is to claim.
struct Look {
    seen: i64,
    /// When the newest row was written, if it was due then.
    newest: Option<i64>,
    expired: bool,
    due: Vec<String>,
}

impl Look {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let due: String = row.try_get(3)?;
        let due = serde_json::from_str(&due).map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(Self { seen: row.try_get(0)?, newest: row.try_get(1)?, expired: row.try_get(2)?, due })
    }
}

/// The parameters that all claims begin with.
fn request_bound(request: &ClaimRequest, now: i64) -> Bound {
    let mut bound = Bound::default();
    bound.scope(&request.scope).add(request.max_attempts).add(now).add(i64::from(request.limit.min(LARGEST_CLAIM)));
    bound
}

pub(super) fn bind_purge(bound: &mut Bound, purge: &Purge, now: i64) {
    bound.scope(&purge.scope).add(ago(now, purge.older_than)).add(i64::from(purge.limit));
}

fn answers(leases: &[Lease], found: &HashMap<(Uuid, i32), i64>) -> Vec<Settled> {
    let settled = |lease: &Lease| match found.contains_key(&(lease.id, lease.attempt)) {
        true => Settled::Done,
        false => Settled::LeaseLost,
    };
    leases.iter().map(settled).collect()
}

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        let ours = self.runner.layout.is_ours();
        Capabilities { rings: true, parallel_writers: false, server_clock: false, fair: ours, order_by_key: ours }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        self.check_lease(request.lease)?;
        let statements = &self.runner.statements;
        let ordered = request.waits == Order::Key;
        if ordered {
            self.made_for(&statements.claim_ordered, "order per key")?;
        }
        if matches!(request.order, ClaimOrder::Fair { .. }) {
            self.made_for(&statements.claim_fair, "fair claims")?;
        }
        let look = self.look(request).await?;
        let step = match &request.order {
            ClaimOrder::Due if look.expired || !look.due.is_empty() => match ordered {
                false => &statements.claim,
                true => self.made_for(&statements.claim_ordered, "order per key")?,
            },
            ClaimOrder::Fair { .. } if !look.due.is_empty() => return self.claim_fair(request).await,
            ClaimOrder::Suspects if look.expired => match ordered {
                false => &statements.claim_suspects,
                true => self.made_for(&statements.claim_suspects_ordered, "order per key")?,
            },
            _ => return Ok(Claimed::default()),
        };
        let failed = |error| for_relay("claim", error);
        let writing = self.runner.begin("claim").await?;
        let now = writing.now;
        let mut bound = request_bound(request, now);
        bound.id(request.worker).add(micros(request.lease));
        if request.order == ClaimOrder::Due {
            let namespaces = i64::try_from(look.due.len()).unwrap_or(i64::MAX);
            // Never below one, because the first row is always taken.
            bound.add(i64::try_from(request.max_bytes.max(1)).unwrap_or(i64::MAX));
            bound.add(json(look.due)).add(namespaces);
            if ordered {
                bound.add(i64::from(request.followers));
            }
        }
        let rows = writing.finish(step, &mut bound).await.map_err(failed)?;
        let messages = self.readable(&rows, request.worker, now).await?;
        Ok(Claimed { messages, last_lane: None })
    }

    async fn extend(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Option<Lease>>, StoreError> {
        self.check_lease(lease)?;
        let head = [micros(lease)];
        let found = self.settle("extend", &[&self.runner.statements.extend], leases, &head, |_, _| {}).await?;
        let turns = self.runner.layout.goes_by_turns();
        let renewed = |lease: &Lease| {
            let seq = found.get(&(lease.id, lease.attempt))?;
            Some(Lease { address: if turns { lease.address } else { address(*seq) }, ..*lease })
        };
        Ok(leases.iter().map(renewed).collect())
    }

    async fn ack(&self, leases: &[Lease], then: Delivered) -> Result<Vec<Settled>, StoreError> {
        let ack = &self.runner.statements.ack;
        let statements: &[&Padded] = match then {
            Delivered::Keep => &[ack],
            Delivered::Delete => &[&self.runner.statements.ack_delete, ack],
        };
        Ok(answers(leases, &self.settle("ack", statements, leases, &[], |_, _| {}).await?))
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = nacks.iter().map(|nack| nack.lease).collect();
        let each = |bound: &mut Bound, at: usize| {
            bound.add(micros(nacks[at].delay)).add(nacks[at].error.clone());
        };
        Ok(answers(&leases, &self.settle("nack", &[&self.runner.statements.nack], &leases, &[], each).await?))
    }

    async fn bury(&self, buries: &[Bury]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = buries.iter().map(|bury| bury.lease).collect();
        let each = |bound: &mut Bound, at: usize| {
            bound.add(buries[at].error.clone());
        };
        Ok(answers(&leases, &self.settle("bury", &[&self.runner.statements.bury], &leases, &[], each).await?))
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Settled>, StoreError> {
        let leases: Vec<Lease> = releases.iter().map(|release| release.lease).collect();
        let each = |bound: &mut Bound, at: usize| {
            bound.add(micros(releases[at].delay)).add(releases[at].error.clone());
        };
        Ok(answers(&leases, &self.settle("release", &[&self.runner.statements.release], &leases, &[], each).await?))
    }

    async fn sweep(&self, scope: &Scope, max_attempts: i32, limit: u32) -> Result<Swept, StoreError> {
        let failed = |error| for_relay("sweep", error);
        let bind = |bound: &mut Bound, now: i64| {
            bound.scope(scope).add(max_attempts).add(now).add(i64::from(limit));
        };
        let rows = self.runner.read("sweep", &self.runner.statements.sweep_look, bind).await?;
        let row = only("sweep", &rows)?;
        let (spent, suspects): (String, bool) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        if spent == "[]" {
            let seen = row.try_get(2).map_err(failed)?;
            if Mark::is_old(seen, self.runner.clock.now_micros()) {
                self.runner.note_time().await;
            }
            return Ok(Swept { buried: Vec::new(), suspects });
        }
        let bind = |bound: &mut Bound, now: i64| {
            bound.add(now).add(max_attempts).add(spent.clone());
        };
        let rows = match &self.runner.statements.entomb {
            None => self.write("sweep", &self.runner.statements.sweep, bind).await?,
            Some(entomb) => self.sweep_and_entomb(bind, entomb).await?,
        };
        // One that has no id is buried all the same.
        let buried = rows.iter().filter_map(|row| read_id(row, 0).ok()).collect();
        Ok(Swept { buried, suspects })
    }

    async fn purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        let Some(step) = self.purge_step(purge).await? else { return Ok(0) };
        let deleted = self.write("purge", step, |bound, now| bind_purge(bound, purge, now));
        Ok(deleted.await?.len() as u64)
    }

    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        let now = self.runner.clock.now_micros();
        let bind = |bound: &mut Bound, _: i64| {
            bound.scope(scope).add(now);
        };
        let rows = self.runner.read("stats", &self.runner.statements.stats, bind).await?;
        let row = only("stats", &rows)?;
        let read = || {
            let count = |at: usize| row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or(0));
            let oldest: Option<i64> = row.try_get(4)?;
            let oldest_due = oldest.map_or(Duration::ZERO, |oldest| between(oldest, now));
            Ok(Stats { pending: count(0)?, due: count(1)?, processing: count(2)?, dead: count(3)?, oldest_due })
        };
        read().map_err(|error| for_relay("stats", error))
    }

    async fn next_due(&self, scope: &Scope) -> Result<Option<Duration>, StoreError> {
        let bind = |bound: &mut Bound, _: i64| {
            bound.scope(scope);
        };
        let rows = self.runner.read("next_due", &self.runner.statements.next_due, bind).await?;
        let due_at: Option<i64> = only("next_due", &rows)?.try_get(0).map_err(|error| for_relay("next_due", error))?;
        let now = self.runner.clock.now_micros();
        Ok(due_at.map(|due_at| between(now, due_at)))
    }

    async fn next_coming(&self, scope: &Scope, since: Duration) -> Result<Option<Duration>, StoreError> {
        let bind = |bound: &mut Bound, now: i64| {
            bound.scope(scope).add(ago(now, since));
        };
        let sql = self.made_for(&self.runner.statements.next_coming, "order per key")?;
        let rows = self.runner.read("next_due", sql, bind).await?;
        let due_at: Option<i64> = only("next_due", &rows)?.try_get(0).map_err(|error| for_relay("next_due", error))?;
        let now = self.runner.clock.now_micros();
        Ok(due_at.map(|due_at| between(now, due_at)))
    }

    async fn doorbell(&self, scope: &Scope) -> Result<Box<dyn Doorbell>, StoreError> {
        Ok(Box::new(SqliteDoorbell::new(self.runner.clone(), &self.neighbours, scope)))
    }

    async fn ring(&self, _scope: &Scope) -> Result<(), StoreError> {
        self.neighbours.ring();
        Ok(())
    }
}

pub(super) fn only<'a>(verb: &str, rows: &'a [SqliteRow]) -> Result<&'a SqliteRow, StoreError> {
    rows.first()
        .ok_or_else(|| StoreError::new(StoreErrorKind::Refused, format!("{verb} failed: the database answered no row")))
}
