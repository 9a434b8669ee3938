//! What a carrier knows while it works: the entry that it tries, the lease that it holds, and what is not written yet.

use std::time::Duration;

use postrider_changelog::{Cursor, Held};
use tokio::time::Instant;
use uuid::Uuid;

/// How many entries are published before the position is written.
const MOST_UNWRITTEN: u32 = 100;
/// For how long entries are published before the position is written.
const LONGEST_UNWRITTEN: Duration = Duration::from_millis(100);

/// What is known of the entry that was tried last. It outlives a lease, so that a lost one shortens no backoff.
#[derive(Default)]
pub struct Trial {
    pub entry: Option<Uuid>,
    pub attempts: i32,
    pub since: Option<Instant>,
    pub not_before: Option<Instant>,
}

impl Trial {
    /// Begins with another entry, unless it is the same.
    pub fn of(&mut self, entry: Uuid) {
        if self.entry != Some(entry) {
            *self = Self { entry: Some(entry), ..Self::default() };
        }
    }
}

/// What was published and is not written yet.
pub struct Unwritten {
    pub cursor: Option<Cursor>,
    pub entries: u32,
    pub since: Instant,
}

impl Unwritten {
    pub fn none() -> Self {
        Self { cursor: None, entries: 0, since: Instant::now() }
    }

    pub fn add(&mut self, cursor: Cursor) {
        if self.cursor.is_none() {
            self.since = Instant::now();
        }
        (self.cursor, self.entries) = (Some(cursor), self.entries + 1);
    }

    pub fn is_full(&self) -> bool {
        self.cursor.is_some() && (self.entries >= MOST_UNWRITTEN || self.since.elapsed() >= LONGEST_UNWRITTEN)
    }
}

/// The lease, and what is to be written under it.
pub struct Hold {
    pub held: Held,
    pub unwritten: Unwritten,
    pub renewed: Instant,
}

impl Hold {
    /// When to renew the lease next, or to write what is not written yet.
    pub fn due(&self, tick: Duration) -> Instant {
        let renewal = self.renewed + tick;
        self.unwritten.cursor.map_or(renewal, |_| renewal.min(self.unwritten.since + LONGEST_UNWRITTEN))
    }
}
