//! What a dispatcher has in hand: rows that wait to be published, and rows under way.
//!
//! Every row is here from its claim until it is settled or given up, which bounds memory by rows and bytes and
//! tells the keeper of leases what to renew. *Trusted until* is worker's time: taken before the claim was sent,
//! so that the lease cannot end earlier on the database's clock, and shortened by a margin.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::queue::{Queue, Waiting};
use crate::lease::Lease;
use crate::sink::{BatchFor, Sink};
use crate::store::{ClaimedMessage, Order};

/// The part of a lease that is kept as a margin.
const MARGIN: u32 = 10;

/// Until when a lease can be trusted that was asked for at `asked`.
pub(super) fn trusted_until(asked: Instant, lease: Duration) -> Instant {
    asked + lease - lease / MARGIN
}

struct Flight {
    lease: Lease,
    asked: Instant,
    trusted_until: Instant,
}

#[derive(Default)]
struct Inner {
    waiting: Queue,
    /// By row and attempt: a row whose lease was lost may be claimed again by ourselves while its first publish is
    /// still under way.
    flights: HashMap<(Uuid, i32), Flight>,
    rows: usize,
    bytes: usize,
    given_back: bool,
}

impl Inner {
    /// Notes that a row is under way.
    fn take_off(&mut self, Waiting { message, asked, trusted_until, .. }: Waiting) -> ClaimedMessage {
        let flight = Flight { lease: message.lease, asked, trusted_until };
        self.flights.insert((message.id, message.attempts), flight);
        message
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Hand {
    order: Order,
    inner: Mutex<Inner>,
    /// Something waits to be published.
    pub work: Notify,
    /// Something was settled.
    pub room: Notify,
}

impl Hand {
    pub fn new(order: Order) -> Self {
        let inner = Inner { waiting: Queue::new(order), ..Inner::default() };
        Self { order, inner: Mutex::new(inner), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rows and bytes in hand.
    pub fn load(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.rows, inner.bytes)
    }

    /// How many rows wait for others of their keys that are in hand too.
    pub fn in_line(&self) -> usize {
        self.lock().waiting.in_line()
    }

    /// How many rows are under way.
    pub fn flying(&self) -> usize {
        self.lock().flights.len()
    }

    /// Puts claimed rows into hand; their claim was asked for at `asked`.
    pub fn add(&self, messages: Vec<ClaimedMessage>, asked: Instant, trusted_until: Instant) {
        let mut inner = self.lock();
        inner.rows += messages.len();
        inner.bytes += messages.iter().map(ClaimedMessage::size).sum::<usize>();
        messages.into_iter().for_each(|message| inner.waiting.add(Waiting { message, asked, trusted_until, place: 0 }));
        drop(inner);
        self.work.notify_one();
    }

    /// Takes rows to publish, as many batches as there are `calls` free. Rows whose lease is no longer trusted stay
    /// behind for the keeper to give back. With order per key no key is in two calls at the same time, and in one call it
    /// is once, unless the sink keeps the order of its messages.
    pub fn take(&self, calls: usize, sink: &dyn Sink, now: Instant) -> Vec<Vec<ClaimedMessage>> {
        let mut inner = self.lock();
        let mut batches: Vec<Vec<ClaimedMessage>> = Vec::new();
        // Where the batch is that is being filled for each key.
        let mut open: HashMap<u64, usize> = HashMap::new();
        while let Some(row) = inner.waiting.front().filter(|row| now < row.trusted_until) {
            let BatchFor { key, limit } = sink.batch_for(&row.message);
            let room = open.get(&key).copied().filter(|at| batches[*at].len() < limit);
            if room.is_none() && batches.len() == calls {
                break;
            }
            let Some(row) = inner.waiting.pop() else { break };
            let at = room.unwrap_or_else(|| {
                open.insert(key, batches.len());
                batches.push(Vec::new());
                batches.len() - 1
            });
            let mut next = Some(inner.take_off(row));
            while let Some(message) = next.take() {
                // Nothing is asked of the sink where nobody stands in line.
                let fits = |follower: &ClaimedMessage, trusted_until: Instant| {
                    let of = sink.batch_for(follower);
                    let has_room = of.key == key && batches[at].len() + 1 < of.limit.min(limit);
                    has_room && now < trusted_until && sink.keeps_order_for(&message)
                };
                let follower = inner.waiting.pop_follower(&message, fits);
                next = follower.map(|row| inner.take_off(row));
                batches[at].push(message);
            }
        }
        batches
    }

    /// Takes out the waiting rows whose trust ends before `then`.
    pub fn take_expiring(&self, then: Instant) -> Vec<Waiting> {
        let (expiring, others_are_ready) = self.lock().waiting.take_expiring(then);
        if others_are_ready {
            // They stood behind rows that could not be taken.
            self.work.notify_one();
        }
        expiring
    }

    /// Takes out all waiting rows.
    pub fn take_waiting(&self) -> Vec<Waiting> {
        self.lock().waiting.take_all()
    }

    /// Takes out the rows that wait for one whose outcome is known.
    pub fn take_followers(&self, of: &ClaimedMessage) -> Vec<Waiting> {
        self.lock().waiting.take_followers(of)
    }

    /// Notes that a row is out of the way of those that wait for it.
    pub fn passed(&self, message: &ClaimedMessage) {
        if self.order == Order::Key && self.lock().waiting.passed(message) {
            self.work.notify_one();
        }
    }

    /// The leases under way whose trust ends before `then`.
    pub fn flights_expiring(&self, then: Instant) -> Vec<Lease> {
        let inner = self.lock();
        inner.flights.values().filter(|flight| flight.trusted_until <= then).map(|flight| flight.lease).collect()
    }

    /// Notes a renewed lease, if the row is still under way.
    pub fn renewed(&self, lease: Lease, trusted_until: Instant) {
        if let Some(flight) = self.lock().flights.get_mut(&(lease.id, lease.attempt)) {
            (flight.lease, flight.trusted_until) = (lease, trusted_until);
        }
    }

    /// Notes that a publish ended: the row is no longer renewed. Answers its newest lease, and when it was claimed.
    pub fn landed(&self, message: &ClaimedMessage) -> (Lease, Instant) {
        let flight = self.lock().flights.remove(&(message.id, message.attempts));
        flight.map_or_else(|| (message.lease, Instant::now()), |flight| (flight.lease, flight.asked))
    }

    /// Notes that rows had to be given back because they waited too long.
    pub fn note_given_back(&self) {
        self.lock().given_back = true;
    }

    /// Whether that happened since this was last asked.
    pub fn take_given_back(&self) -> bool {
        std::mem::take(&mut self.lock().given_back)
    }

    /// Frees the room of rows that were settled or given up.
    pub fn done<'a>(&self, messages: impl Iterator<Item = &'a ClaimedMessage>) {
        let mut inner = self.lock();
        for message in messages {
            inner.rows = inner.rows.saturating_sub(1);
            inner.bytes = inner.bytes.saturating_sub(message.size());
        }
        drop(inner);
        self.room.notify_waiters();
    }

    /// Waits until `fits` is true of the rows and bytes in hand.
    pub async fn until(&self, fits: impl Fn(usize, usize) -> bool) {
        loop {
            let freed = self.room.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let (rows, bytes) = self.load();
            if fits(rows, bytes) {
                return;
            }
            freed.await;
        }
    }
}
