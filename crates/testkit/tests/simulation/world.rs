//! What all parts of a run share: the database with its clock, what is written down, chance, and whether faults are on.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider::MemoryStore;
use postrider::memory::Clock;
use tokio::time::{Instant, sleep};

use super::books::Books;
use super::chance::Chance;
use super::plan::Plan;
use super::rows::Verb;
use super::sabotage::Sabotage;
use super::story::Story;

/// 2023-11-14, in microseconds since 1970.
const EPOCH: i64 = 1_700_000_000_000_000;
/// A run that does more than this is going round in circles.
const MOST_EFFECTS: u64 = 200_000;

/// The database's clock. Follows the simulated time, and jumps.
#[derive(Clone)]
pub struct DatabaseClock {
    begun: Instant,
    offset: Arc<AtomicI64>,
}

impl DatabaseClock {
    pub fn jump(&self, micros: i64) {
        self.offset.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for DatabaseClock {
    fn now_micros(&self) -> i64 {
        let elapsed = i64::try_from(self.begun.elapsed().as_micros()).unwrap_or(i64::MAX);
        EPOCH + elapsed + self.offset.load(Ordering::Relaxed)
    }
}

pub struct World {
    pub plan: Plan,
    pub chance: Chance,
    pub story: Story,
    pub clock: DatabaseClock,
    pub store: MemoryStore,
    pub sabotage: Option<Sabotage>,
    books: Mutex<Books>,
    healed: AtomicBool,
    outages: Mutex<Outages>,
}

/// Until when nobody answers.
#[derive(Clone, Copy)]
struct Outages {
    database: Instant,
    sink: Instant,
}

impl World {
    pub fn new(plan: Plan, chance: Chance, story: Story, sabotage: Option<Sabotage>) -> Arc<Self> {
        let now = Instant::now();
        let clock = DatabaseClock { begun: now, offset: Arc::default() };
        Arc::new(Self {
            plan,
            chance,
            story,
            store: MemoryStore::with_clock(clock.clone()),
            clock,
            sabotage,
            books: Mutex::default(),
            healed: AtomicBool::new(false),
            outages: Mutex::new(Outages { database: now, sink: now }),
        })
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }

    /// Does something to the table, and looks at every row before and after.
    pub fn effect<T>(&self, verb: &Verb, run: impl FnOnce(&MemoryStore) -> T) -> T {
        let answer = run(&self.store);
        let attempts = i32::try_from(self.plan.max_attempts).unwrap_or(i32::MAX);
        let mut books = self.books();
        books.observe(verb, &self.store.enqueued(), attempts, self.now_micros());
        assert!(books.counts.effects < MOST_EFFECTS, "the run goes round in circles");
        answer
    }

    /// For how long a relay may be in trouble after a statement that was not answered: it settles again for a lease, and
    /// the last try may take its time.
    pub fn aftermath(&self) -> Duration {
        self.plan.lease + self.plan.store_timeout * 2
    }

    /// Whether a relay that stops has the time to finish what it has begun.
    pub fn is_patient(&self) -> bool {
        self.plan.grace > self.plan.publish_takes + self.plan.latency * 6
    }

    pub async fn latency(&self) {
        pause(self.chance.part_of(self.plan.latency)).await;
    }

    /// No more faults, and everybody answers again.
    pub fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
        *self.outages() = Outages { database: Instant::now(), sink: Instant::now() };
    }

    /// Whether something goes wrong that does so many times in a thousand.
    pub fn goes_wrong(&self, per_mille: u64) -> bool {
        !self.healed.load(Ordering::Relaxed) && per_mille > 0 && self.chance.happens(per_mille)
    }

    fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take_down_database(&self, lasts: Duration) {
        self.outages().database = Instant::now() + lasts;
    }

    pub fn take_down_sink(&self, lasts: Duration) {
        self.outages().sink = Instant::now() + lasts;
    }

    pub fn database_is_down(&self) -> bool {
        Instant::now() < self.outages().database
    }

    pub fn sink_is_down(&self) -> bool {
        Instant::now() < self.outages().sink
    }
}

/// Waits, if there is anything to wait for.
pub async fn pause(lasts: Duration) {
    if !lasts.is_zero() {
        sleep(lasts).await;
    }
}
