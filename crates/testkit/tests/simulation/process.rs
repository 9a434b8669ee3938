//! A relay as its surroundings see it: it runs, stands still, or is dead. Whatever it sends and hears passes through here,
//! so that from one moment on nothing that a dead one does has an effect, and nothing reaches one that stands still.

use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Runs,
    Frozen,
    Dead,
}

pub struct Process {
    pub number: usize,
    pub worker: Uuid,
    /// Fires when it dies.
    pub killed: CancellationToken,
    life: Mutex<Life>,
    changed: Notify,
    /// After so many passes it dies; never if this is zero.
    fuse: AtomicU64,
}

impl Process {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            worker: Uuid::from_u128(number as u128),
            killed: CancellationToken::new(),
            life: Mutex::new(Life::Runs),
            changed: Notify::new(),
            fuse: AtomicU64::new(0),
        }
    }

    fn life(&self) -> Life {
        *self.life.lock().expect("nobody panics while it holds this")
    }

    fn set(&self, life: Life) {
        *self.life.lock().expect("nobody panics while it holds this") = life;
        self.changed.notify_waiters();
    }

    pub fn is_dead(&self) -> bool {
        self.life() == Life::Dead
    }

    pub fn is_frozen(&self) -> bool {
        self.life() == Life::Frozen
    }

    /// Lets something in or out, once the process runs. Never comes back to a dead one.
    pub async fn pass(&self, world: &World, what: &str) {
        if self.life() == Life::Runs
            && self.fuse.load(Ordering::Relaxed) > 0
            && self.fuse.fetch_sub(1, Ordering::Relaxed) == 1
        {
            self.die(world, what);
        }
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.life() == Life::Runs {
                return;
            }
            changed.await;
        }
    }

    /// Dies when it has passed so many times more.
    pub fn light_fuse(&self, passes: u64) {
        self.fuse.store(passes, Ordering::Relaxed);
    }

    /// Dies at once.
    pub fn die(&self, world: &World, at: &str) {
        world.story.tell(|| format!("relay {} dies at {at}", self.number));
        let mut books = world.books();
        books.counts.crashes += 1;
        books.crashed(self.worker);
        drop(books);
        self.set(Life::Dead);
        self.killed.cancel();
    }

    pub fn freeze(&self, world: &World) {
        world.story.tell(|| format!("relay {} stands still", self.number));
        let mut books = world.books();
        books.counts.freezes += 1;
        books.frozen(self.worker, true, world.aftermath());
        drop(books);
        self.set(Life::Frozen);
    }

    pub fn thaw(&self, world: &World) {
        if self.is_frozen() {
            world.story.tell(|| format!("relay {} goes on", self.number));
            world.books().frozen(self.worker, false, world.aftermath());
            self.set(Life::Runs);
        }
    }
}
