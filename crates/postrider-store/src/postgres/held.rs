//! Claims that are row locks, for tables where a claim may not be written (see [`ClaimBy::RowLock`](crate::layout::ClaimBy)).
//!
//! Each claim is a transaction of its own that stays open while its messages are published, and commits when the last of them
//! is settled. It is bounded three times: few rows, a time after which we give it up, and the session's own time-outs, so that
//! the database gives it up if we cannot. When the connection is lost the marks of its claim are lost too, and those messages are
//! published again.
//!
//! Marks are made behind savepoints: one that fails takes no other with it. What becomes of a failed one depends on why it failed
//! ([`Refusal`]). A message whose mark the database refuses has been published, and nothing in the table says so; it is left alone for a
//! while, because its row is free and would be claimed again at once. Where the database refuses all of them, that is an error, and the
//! dispatcher pauses.
//!
//! Such a table has no place for a backoff, so backoffs are kept here, in memory.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::lease::{Lease, RowAddress};
use postrider_core::store::{Settled, StoreError};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Row};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::error::{for_relay, kind_of, sqlstate};
use crate::sql::Sql;

/// How long a claim waits for one of the transactions that may be open at the same time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Commits; the first statement fails in a transaction that is aborted, which `commit` alone would end without a word.
const COMMIT: &str = "select; commit";
/// The most messages that are left alone at the same time. Where there are so many nothing else is claimed until the first of them is over: each
/// claim must name them all, and one that were forgotten would be published again at once.
const MOST_LATER: usize = 10_000;
/// How long a message is left alone whose mark the database refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// How long a message is left alone that was given up and cannot be marked as dead.
pub(super) const GIVEN_UP_PAUSE: Duration = Duration::from_secs(3_600);

/// The open claims of a store.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pool: PgPool,
    behind_pooler: bool,
    longest: Duration,
    slots: Arc<Semaphore>,
    /// The latest claim found every transaction taken.
    crowded: Arc<AtomicBool>,
    /// The latest claim found no room for more messages that are left alone.
    full: Arc<AtomicBool>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    claims: HashMap<u64, Watched>,
    /// Which claim holds a row.
    rows: HashMap<RowKey, u64>,
    later: HashMap<Uuid, Later>,
    last: u64,
}

/// A claim, and who gives it up when it lasts too long.
#[derive(Debug)]
struct Watched {
    claim: Arc<tokio::sync::Mutex<Claim>>,
    watch: AbortHandle,
}

/// A claim of a row: its id, its attempt, its worker, and the number of its claim, which a lease has in the place of an address. Where nothing is counted, or a claim
/// was given up before its attempt was, the same worker may have claimed the row again with the same attempt.
type RowKey = (Uuid, i32, Uuid, u64);

fn key(lease: &Lease) -> RowKey {
    (lease.id, lease.attempt, lease.worker, lease.address.0)
}

/// A message that is left alone for a while.
#[derive(Debug, Clone, Copy)]
struct Later {
    until: Instant,
    attempts: i32,
}

#[derive(Debug)]
struct Claim {
    /// Gone once the claim is over.
    transaction: Option<Open>,
    open: HashSet<RowKey>,
    /// How many marks wait for the commit.
    marked: usize,
    until: Instant,
    _slot: OwnedSemaphorePermit,
}

impl Claim {
    /// Says that marks are lost, whose messages were counted as settled.
    fn say_what_is_lost(&mut self) {
        let messages = std::mem::take(&mut self.marked);
        if messages > 0 {
            tracing::error!(
                messages,
                "a claim by row lock ended without a commit that was answered; its messages, most of which were counted as settled, are published again"
            );
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.say_what_is_lost();
    }
}

/// A connection with a transaction open. Dropped, also by a caller that lost its patience, it is closed: given back to the pool
/// it would keep its row locks.
#[derive(Debug)]
struct Open(Option<PoolConnection<Postgres>>);

impl Open {
    fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        self.0.as_deref_mut().ok_or(sqlx::Error::WorkerCrashed)
    }

    /// Ends the transaction, and gives the connection back if that worked.
    async fn end(mut self, with: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(with).execute(self.connection()?).await?;
        drop(self.0.take());
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

/// A claim that is being made: its transaction is open, and its rows are not known yet.
pub(super) struct Begun {
    transaction: Open,
    slot: OwnedSemaphorePermit,
    since: Instant,
}

impl Begun {
    /// Runs the statement that locks the rows.
    pub async fn fetch(
        &mut self,
        query: sqlx::query::Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        query.fetch_all(self.transaction.connection()?).await
    }

    /// Ends a transaction that is of no use.
    pub async fn give_up(self) {
        let _closed_if_not_rolled_back = self.transaction.end("rollback").await;
    }
}

impl Held {
    pub fn new(pool: &PgPool, longest: Duration, behind_pooler: bool) -> Self {
        // The other half is for everything else, and for whoever shares the pool.
        let slots = (pool.options().get_max_connections() as usize / 2).max(1);
        Self {
            pool: pool.clone(),
            behind_pooler,
            longest,
            slots: Arc::new(Semaphore::new(slots)),
            crowded: Arc::default(),
            full: Arc::default(),
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the transaction of a claim; nothing if as many are open as may be.
    pub async fn begin(&self) -> Result<Option<Begun>, StoreError> {
        let slot = tokio::time::timeout(PATIENCE, self.slots.clone().acquire_owned()).await;
        self.crowded.store(!matches!(slot, Ok(Ok(_))), Ordering::Relaxed);
        let Ok(Ok(slot)) = slot else { return Ok(None) };
        let failed = |error| for_relay("claim", error);
        let since = Instant::now();
        let mut transaction = Open(Some(self.pool.acquire().await.map_err(failed)?));
        let longest = self.longest.as_millis();
        let begin = format!(
            "begin; set local idle_in_transaction_session_timeout = {longest}; set local statement_timeout = {longest}; set local lock_timeout = {longest}"
        );
        let connection = transaction.connection().map_err(failed)?;
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(connection).await.map_err(failed)?;
        Ok(Some(Begun { transaction, slot, since }))
    }

    /// Keeps the rows of a claim until they are settled, and writes its number to their leases.
    pub fn keep<'l>(&self, begun: Begun, leases: impl IntoIterator<Item = &'l mut Lease>) {
        let until = begun.since + self.longest;
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        let numbered = |lease: &mut Lease| {
            lease.address = RowAddress(number);
            key(lease)
        };
        let open: HashSet<RowKey> = leases.into_iter().map(numbered).collect();
        state.rows.extend(open.iter().map(|row| (*row, number)));
        let claim = Claim { transaction: Some(begun.transaction), open, marked: 0, until, _slot: begun.slot };
        let claim = Arc::new(tokio::sync::Mutex::new(claim));
        let watch = tokio::spawn(self.clone().watch(number)).abort_handle();
        state.claims.insert(number, Watched { claim, watch });
    }

    /// Gives a claim up that lasts too long, or whose pool is being closed. The marks that were made stand.
    async fn watch(self, number: u64) {
        let mut closed = pin!(self.pool.close_event());
        loop {
            let Some(claim) = self.claim(number) else { return };
            let until = claim.lock().await.until;
            drop(claim);
            let is_closed = tokio::select! {
                () = &mut closed => true,
                () = tokio::time::sleep_until(until.into()) => false,
            };
            let Some(claim) = self.claim(number) else { return };
            let mut claim = claim.lock().await;
            if is_closed || claim.until <= Instant::now() {
                tracing::warn!(messages = claim.open.len(), after = ?self.longest, "gave a claim by row lock up; its messages are published again");
                let transaction = claim.transaction.take();
                if let Some(transaction) = transaction
                    && transaction.end(COMMIT).await.is_ok()
                {
                    claim.marked = 0;
                }
                self.lose(number, &mut claim);
                return;
            }
        }
    }

    /// Forgets a claim; its connection is closed, and the database rolls its transaction back.
    fn lose(&self, number: u64, claim: &mut Claim) {
        claim.transaction = None;
        claim.say_what_is_lost();
        self.forget(number, claim.open.drain());
    }

    fn forget(&self, number: u64, rows: impl Iterator<Item = RowKey>) {
        let mut state = self.state();
        for row in rows {
            if state.rows.get(&row) == Some(&number) {
                state.rows.remove(&row);
            }
        }
        if let Some(watched) = state.claims.remove(&number) {
            watched.watch.abort();
        }
    }

    /// Leases by the claim that holds them; those of no claim are lost.
    fn by_claim(&self, leases: &[Lease]) -> Vec<(u64, Vec<usize>)> {
        let state = self.state();
        let mut claims: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, lease) in leases.iter().enumerate() {
            if let Some(number) = state.rows.get(&key(lease)) {
                claims.entry(*number).or_default().push(at);
            }
        }
        claims.into_iter().collect()
    }

    fn claim(&self, number: u64) -> Option<Arc<tokio::sync::Mutex<Claim>>> {
        self.state().claims.get(&number).map(|watched| watched.claim.clone())
    }

    /// Marks rows in their claims' transactions. A claim whose rows are all settled is committed.
    pub async fn settle<A>(
        &self,
        verb: &'static str,
        sql: &Sql,
        leases: &[Lease],
        arguments: A,
    ) -> Result<Vec<Settled>, StoreError>
    where
        A: Fn(&[usize]) -> Result<PgArguments, sqlx::Error> + Send + Sync,
    {
        let (mut settled, mut refusal) = (vec![Settled::LeaseLost; leases.len()], None);
        for (number, which) in self.by_claim(leases) {
            let Some(claim) = self.claim(number) else { continue };
            let mut claim = claim.lock().await;
            let (rows, refused) = match self.settle_in(&mut claim, sql, &which, &arguments).await {
                Ok(settled) => settled,
                Err(error) => {
                    // Where the transaction goes on, the claim stays and the same verb may be tried again.
                    if claim.transaction.is_none() {
                        self.lose(number, &mut claim);
                    }
                    return Err(for_relay(verb, error));
                }
            };
            for (at, error) in refused {
                self.later(&leases[at], REFUSED_PAUSE);
                refusal.get_or_insert(error);
            }
            let done: Vec<RowKey> = which.iter().map(|at| key(&leases[*at])).collect();
            done.iter().for_each(|row| {
                claim.open.remove(row);
                self.state().rows.remove(row);
            });
            claim.marked += rows.len();
            if claim.open.is_empty() {
                self.commit(number, &mut claim).await.map_err(|error| for_relay(verb, error))?;
            }
            let marked = ids(&rows).map_err(|error| for_relay(verb, error))?;
            which.iter().filter(|at| marked.contains(&leases[**at].id)).for_each(|at| settled[*at] = Settled::Done);
        }
        match refusal {
            // Nothing can be marked: to go on would publish one message after the other that comes again.
            Some(error) if !settled.contains(&Settled::Done) && is_of_the_role(&error) => Err(for_relay(verb, error)),
            _ => Ok(settled),
        }
    }

    async fn settle_in<A>(
        &self,
        claim: &mut Claim,
        sql: &Sql,
        which: &[usize],
        arguments: &A,
    ) -> Result<Marked, sqlx::Error>
    where
        A: Fn(&[usize]) -> Result<PgArguments, sqlx::Error> + Send + Sync,
    {
        // Out of the claim while a statement runs: one that is cut off leaves a transaction that nobody knows the state of, and
        // is closed.
        let Some(mut transaction) = claim.transaction.take() else { return Ok(Marked::default()) };
        let marked = self.mark_all(transaction.connection()?, sql, which, arguments).await;
        if marked.as_ref().err().is_none_or(|error| Refusal::of(error) != Refusal::Lost) {
            claim.transaction = Some(transaction);
        }
        marked
    }

    async fn mark_all<A>(
        &self,
        connection: &mut PgConnection,
        sql: &Sql,
        which: &[usize],
        arguments: &A,
    ) -> Result<Marked, sqlx::Error>
    where
        A: Fn(&[usize]) -> Result<PgArguments, sqlx::Error> + Send + Sync,
    {
        let (mut rows, mut refusals) = (Vec::new(), Vec::new());
        match self.mark(connection, sql, arguments(which)?).await {
            Ok(marked) => rows = marked,
            // The server refused one of them: each on its own, so that it takes no other with it.
            Err(error) if Refusal::of(&error) == Refusal::Row && which.len() > 1 => {
                for at in which {
                    match self.mark(connection, sql, arguments(&[*at])?).await {
                        Ok(marked) => rows.extend(marked),
                        Err(error) if Refusal::of(&error) == Refusal::Row => refusals.push((*at, error)),
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) if Refusal::of(&error) == Refusal::Row => {
                refusals.extend(which.iter().copied().zip([error]));
            }
            Err(error) => return Err(error),
        }
        refusals.iter().for_each(|(_, error)| refused(error));
        Ok((rows, refusals))
    }

    /// Runs a statement behind a savepoint.
    async fn mark(
        &self,
        connection: &mut PgConnection,
        sql: &Sql,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        sqlx::raw_sql("savepoint mark").execute(&mut *connection).await?;
        let query = sqlx::query_with(AssertSqlSafe(sql.clone()), arguments).persistent(!self.behind_pooler);
        match query.fetch_all(&mut *connection).await {
            Ok(rows) => sqlx::raw_sql("release savepoint mark").execute(connection).await.map(|_| rows),
            Err(error) if Refusal::of(&error) == Refusal::Lost => Err(error),
            Err(error) => {
                sqlx::raw_sql("rollback to savepoint mark").execute(connection).await?;
                Err(error)
            }
        }
    }

    async fn commit(&self, number: u64, claim: &mut Claim) -> Result<(), sqlx::Error> {
        self.forget(number, std::iter::empty());
        let Some(transaction) = claim.transaction.take() else { return Ok(()) };
        // Whoever waits for it may lose patience; then the claim goes, and says what went with it.
        transaction.end(COMMIT).await?;
        claim.marked = 0;
        Ok(())
    }

    /// Which leases still hold; their claims may go on for as long again.
    pub async fn renew(&self, leases: &[Lease]) -> Vec<bool> {
        let mut held = vec![false; leases.len()];
        for (number, which) in self.by_claim(leases) {
            let Some(claim) = self.claim(number) else { continue };
            let mut claim = claim.lock().await;
            let Some(transaction) = claim.transaction.as_mut() else { continue };
            let Ok(connection) = transaction.connection() else { continue };
            match sqlx::raw_sql("select").execute(connection).await {
                Ok(_) => {
                    claim.until = Instant::now() + self.longest;
                    which.iter().for_each(|at| held[*at] = true);
                }
                Err(_) => self.lose(number, &mut claim),
            }
        }
        held
    }

    /// How many messages may be claimed, so that each of them can be left alone for a while.
    pub fn room(&self) -> u32 {
        let (now, state) = (Instant::now(), self.state());
        let left_alone = state.later.values().filter(|later| later.until > now).count();
        let room = MOST_LATER.saturating_sub(left_alone + state.rows.len());
        if room > 0 {
            self.full.store(false, Ordering::Relaxed);
        } else if !self.full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                left_alone,
                "so many messages wait for their next attempt that no others are claimed until the first of them is due"
            );
        }
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Leaves a message alone for a while. Nothing that is left alone is forgotten for it.
    pub fn later(&self, lease: &Lease, delay: Duration) {
        let mut state = self.state();
        let now = Instant::now();
        if state.later.len() >= MOST_LATER && !state.later.contains_key(&lease.id) {
            let first = state.later.iter().min_by_key(|(_, later)| later.until);
            let over = first.filter(|(_, later)| later.until <= now).map(|(id, _)| *id);
            over.and_then(|id| state.later.remove(&id));
        }
        let until = now + delay;
        // A mark that was refused may ask for longer than what was to be marked.
        let until = state.later.get(&lease.id).map_or(until, |later| later.until.max(until));
        state.later.insert(lease.id, Later { until, attempts: lease.attempt });
    }

    /// Forgets the backoffs of the messages that are finished.
    pub fn finished(&self, leases: &[Lease], settled: &[Settled]) {
        let mut state = self.state();
        let done = leases.iter().zip(settled).filter(|(_, settled)| **settled == Settled::Done);
        done.for_each(|(lease, _)| {
            state.later.remove(&lease.id);
        });
    }

    /// The messages that are left alone now.
    pub fn left_alone(&self) -> Vec<Uuid> {
        let now = Instant::now();
        self.state().later.iter().filter(|(_, later)| later.until > now).map(|(id, _)| *id).collect()
    }

    /// How often a message was tried by this process, as far as it is remembered.
    pub fn attempts(&self, id: Uuid) -> i32 {
        self.state().later.get(&id).map_or(0, |later| later.attempts)
    }

    /// How long until the first message is no longer left alone, or at once if there was no room to look.
    pub fn next_due(&self) -> Option<Duration> {
        if self.crowded.load(Ordering::Relaxed) {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        self.state().later.values().map(|later| later.until).filter(|until| *until > now).min().map(|until| until - now)
    }
}

/// The rows that were marked, and the leases whose marks were refused.
type Marked = (Vec<PgRow>, Vec<(usize, sqlx::Error)>);

/// Why a mark failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The database refuses this row; the transaction goes on with the others.
    Row,
    /// The server could not do it now: no room, a lock, a deadlock. The transaction goes on, and the mark may be tried again.
    Later,
    /// The connection or the transaction is lost, and all marks with it. Classes 08, 25 and 57, and no answer at all.
    Lost,
}

impl Refusal {
    fn of(error: &sqlx::Error) -> Self {
        match sqlstate(error) {
            Some(state) if ["08", "25", "57"].iter().any(|class| state.starts_with(class)) => Self::Lost,
            Some(state) if kind_of(&state).is_transient() => Self::Later,
            Some(_) => Self::Row,
            None => Self::Lost,
        }
    }
}

/// The ids of the rows that a statement marked.
fn ids(rows: &[PgRow]) -> Result<HashSet<Uuid>, sqlx::Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Whether a refusal is of the role or of the statement rather than of the row. Class 42.
fn is_of_the_role(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|state| state.starts_with("42"))
}

fn refused(error: &sqlx::Error) {
    let code = sqlstate(error).unwrap_or_default();
    tracing::error!(%code, again_in = ?REFUSED_PAUSE, "the database refused the mark of a message, which is published again; mend the cause");
}
