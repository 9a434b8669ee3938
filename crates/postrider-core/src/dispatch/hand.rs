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

use super::config::Config;
use super::limit::{Allowed, Limiter};
use super::queue::{LaneId, Queue, Waiting};
use crate::lease::Lease;
use crate::sink::{BatchFor, Sink};
use crate::store::{ClaimedMessage, Line, Order};

/// The part of a lease that is kept as a margin.
const MARGIN: u32 = 10;
/// When no further call is free, how many lanes are looked through for rows that fit into the batches there are.
const LOOK_AHEAD: usize = 64;

/// Until when a lease can be trusted that was asked for at `asked`.
pub(super) fn trusted_until(asked: Instant, lease: Duration) -> Instant {
    asked + lease - lease / MARGIN
}

struct Flight {
    lease: Lease,
    place: u64,
    asked: Instant,
    trusted_until: Instant,
    begun: Instant,
}

/// What was taken to be published.
#[derive(Default)]
pub(super) struct Taken {
    pub batches: Vec<Vec<ClaimedMessage>>,
    /// When more could be taken, because a tenant's rate allows it then.
    pub next: Option<Instant>,
}

/// The batches that are being filled.
struct Filling<'a> {
    sink: &'a dyn Sink,
    calls: usize,
    now: Instant,
    batches: Vec<Vec<ClaimedMessage>>,
    /// Where the batch is that is being filled for each key.
    open: HashMap<u64, usize>,
    next: Option<Instant>,
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
    limiter: Option<Limiter>,
}

impl Inner {
    /// Notes that a row is under way.
    fn take_off(&mut self, row: Waiting, now: Instant) -> ClaimedMessage {
        let Waiting { message, asked, trusted_until, place } = row;
        let flight = Flight { lease: message.lease, place, asked, trusted_until, begun: now };
        self.flights.insert((message.id, message.attempts), flight);
        if let Some(limiter) = &mut self.limiter {
            limiter.waits_no_more(&message);
            limiter.takes_off(&message, now);
        }
        message
    }

    /// Notes that rows were taken out.
    fn taken_out(&mut self, rows: Vec<Waiting>) -> Vec<Waiting> {
        if let Some(limiter) = &mut self.limiter {
            rows.iter().for_each(|row| limiter.waits_no_more(&row.message));
        }
        rows
    }

    /// Whether the limits of a tenant allow one more message; if not, notes when they will.
    fn allows(&self, message: &ClaimedMessage, filling: &mut Filling<'_>) -> bool {
        let allowed = |limiter: &Limiter| limiter.allowed(message.tenant_id, filling.now);
        match self.limiter.as_ref().map_or(Allowed::Now, allowed) {
            Allowed::Now => true,
            Allowed::AfterOther => false,
            Allowed::At(then) => {
                filling.next = Some(filling.next.map_or(then, |next| next.min(then)));
                false
            }
        }
    }

    /// Gives a lane its turn: the rows that fit into one batch. Answers whether it gave any.
    fn turn(&mut self, lane: LaneId, filling: &mut Filling<'_>) -> bool {
        let mut mine = None;
        while let Some(row) = self.waiting.front(lane).filter(|row| filling.now < row.trusted_until) {
            if !self.allows(&row.message, filling) {
                break;
            }
            let BatchFor { key, limit } = filling.sink.batch_for(&row.message);
            let room = filling.open.get(&key).copied().filter(|at| filling.batches[*at].len() < limit);
            let has_had_its_turn = mine.is_some() && room != mine;
            if has_had_its_turn || (room.is_none() && filling.batches.len() == filling.calls) {
                break;
            }
            let Some(row) = self.waiting.pop(lane) else { break };
            let at = room.unwrap_or_else(|| {
                filling.open.insert(key, filling.batches.len());
                filling.batches.push(Vec::new());
                filling.batches.len() - 1
            });
            mine = Some(at);
            self.fill(row, BatchFor { key, limit }, at, filling);
        }
        mine.is_some()
    }

    /// Puts a row into a batch, and those that stand in line behind it if the sink keeps their order.
    fn fill(&mut self, row: Waiting, of: BatchFor, at: usize, filling: &mut Filling<'_>) {
        let (now, sink) = (filling.now, filling.sink);
        let mut next = Some(self.take_off(row, now));
        while let Some(message) = next.take() {
            let (limiter, size) = (self.limiter.as_ref(), filling.batches[at].len());
            // Nothing is asked of the sink where nobody stands in line.
            let fits = |follower: &ClaimedMessage, trusted_until: Instant| {
                let follows = sink.batch_for(follower);
                let has_room = follows.key == of.key && size + 1 < follows.limit.min(of.limit);
                let allowed = limiter.is_none_or(|limiter| limiter.allowed(follower.tenant_id, now) == Allowed::Now);
                has_room && allowed && now < trusted_until && sink.keeps_order_for(&message)
            };
            let follower = self.waiting.pop_follower(&message, fits);
            next = follower.map(|row| self.take_off(row, now));
            filling.batches[at].push(message);
        }
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
    pub fn new(config: &Config) -> Self {
        let order = config.order;
        let limiter = Limiter::new(&config.tenant_limits, config.lease, config.max_rows, Instant::now());
        let inner = Inner { waiting: Queue::new(order), limiter, ..Inner::default() };
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
        for message in messages {
            if let Some(limiter) = &mut inner.limiter {
                limiter.waits(&message, asked);
            }
            inner.waiting.add(Waiting { message, asked, trusted_until, place: 0 });
        }
        drop(inner);
        self.work.notify_one();
    }

    /// Takes rows to publish, as many batches as there are `calls` free. Lanes take turns, a turn being the rows that fit into
    /// one batch; tenants over their limit are passed over. Rows whose lease is no longer trusted stay behind for the keeper
    /// to give back. With order per key no key is in two calls at the same time, and in one call it is once, unless the sink
    /// keeps the order of its messages.
    pub fn take(&self, calls: usize, sink: &dyn Sink, now: Instant) -> Taken {
        let mut inner = self.lock();
        let mut filling = Filling { sink, calls, now, batches: Vec::new(), open: HashMap::new(), next: None };
        let (mut passed_over, mut looks) = (0, LOOK_AHEAD);
        while let Some(lane) = inner.waiting.turn(passed_over) {
            match inner.turn(lane, &mut filling) {
                true => inner.waiting.turn_over(passed_over),
                // It keeps its place, and is the first to be asked next time.
                false => passed_over += 1,
            }
            if filling.batches.len() == calls {
                looks -= 1;
                if looks == 0 {
                    break;
                }
            }
        }
        Taken { batches: filling.batches, next: filling.next }
    }

    /// Which of the claimed rows are put off because their tenants are over their limits, and for how long. With order per
    /// key, what comes behind such a row is put off with it.
    pub fn put_off(&self, messages: &mut Vec<ClaimedMessage>, now: Instant) -> Vec<(ClaimedMessage, Duration)> {
        let mut inner = self.lock();
        let Some(limiter) = &mut inner.limiter else { return Vec::new() };
        let mut lines: HashMap<Line<'_>, Duration> = HashMap::new();
        let mut delays = Vec::with_capacity(messages.len());
        for message in messages.iter() {
            let line = message.line().filter(|_| self.order == Order::Key);
            let behind = line.and_then(|line| lines.get(&line)).copied();
            let delay = behind.or_else(|| limiter.put_off(message, now));
            match delay {
                Some(delay) => lines.extend(line.map(|line| (line, delay))),
                // Those that stay are counted when they come into hand, so this one is counted among the others here.
                None => limiter.waits(message, now),
            }
            delays.push(delay);
        }
        let (mut stay, mut put_off) = (Vec::with_capacity(messages.len()), Vec::new());
        for (message, delay) in messages.drain(..).zip(delays) {
            match delay {
                Some(delay) => put_off.push((message, delay)),
                None => stay.push(message),
            }
        }
        stay.iter().for_each(|message| limiter.waits_no_more(message));
        *messages = stay;
        put_off
    }

    /// Forgets what need not be known of tenants any more.
    pub fn forget_idle_tenants(&self, now: Instant) {
        if let Some(limiter) = &mut self.lock().limiter {
            limiter.forget_idle(now);
        }
    }

    /// Takes out the waiting rows whose trust ends before `then`.
    pub fn take_expiring(&self, then: Instant) -> Vec<Waiting> {
        let mut inner = self.lock();
        let (expiring, others_are_ready) = inner.waiting.take_expiring(then);
        let expiring = inner.taken_out(expiring);
        drop(inner);
        if others_are_ready {
            // They stood behind rows that could not be taken.
            self.work.notify_one();
        }
        expiring
    }

    /// Takes out all waiting rows.
    pub fn take_waiting(&self) -> Vec<Waiting> {
        let mut inner = self.lock();
        let all = inner.waiting.take_all();
        inner.taken_out(all)
    }

    /// Takes out the rows that wait for one whose outcome is known.
    pub fn take_followers(&self, of: &ClaimedMessage) -> Vec<Waiting> {
        let mut inner = self.lock();
        let followers = inner.waiting.take_followers(of);
        inner.taken_out(followers)
    }

    /// Notes that a row is out of the way of those that wait for it.
    pub fn passed(&self, message: &ClaimedMessage) {
        if self.order == Order::Key && self.lock().waiting.passed(message) {
            self.work.notify_one();
        }
    }

    /// The leases under way whose trust ends before `then`, in the order in which their rows came.
    pub fn flights_expiring(&self, then: Instant) -> Vec<Lease> {
        let inner = self.lock();
        let mut expiring: Vec<_> = inner.flights.values().filter(|flight| flight.trusted_until <= then).collect();
        expiring.sort_unstable_by_key(|flight| flight.place);
        expiring.into_iter().map(|flight| flight.lease).collect()
    }

    /// Notes a renewed lease, if the row is still under way.
    pub fn renewed(&self, lease: Lease, trusted_until: Instant) {
        if let Some(flight) = self.lock().flights.get_mut(&(lease.id, lease.attempt)) {
            (flight.lease, flight.trusted_until) = (lease, trusted_until);
        }
    }

    /// Notes that a publish ended: the row is no longer renewed. Answers its newest lease, and when it was claimed.
    pub fn landed(&self, message: &ClaimedMessage) -> (Lease, Instant) {
        let mut inner = self.lock();
        let flight = inner.flights.remove(&(message.id, message.attempts));
        let took = flight.as_ref().map(|flight| flight.begun.elapsed());
        let limiter = inner.limiter.as_mut();
        let another_may_go = limiter.is_some_and(|limiter| limiter.landed(message, took));
        drop(inner);
        if another_may_go {
            self.work.notify_one();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::limit::{TenantLimit, TenantLimits};
    use crate::lease::RowAddress;
    use crate::store::Payload;

    #[test]
    fn r24_two_publishes_of_the_same_row_and_attempt_both_end() {
        let (now, lasts) = (Instant::now(), Duration::from_secs(30));
        let limiter = Limiter::new(&TenantLimits::each(TenantLimit::none().in_flight(1)), lasts, 100, now);
        let hand = Hand { inner: Mutex::new(Inner { limiter, ..Inner::default() }), ..Hand::default() };
        let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "shop".into(), "t".into(), Payload::Json("{}".into()));
        message.tenant_id = Some(Uuid::from_u128(1));
        let allowed = || hand.lock().limiter.as_ref().map(|limiter| limiter.allowed(message.tenant_id, now));
        for _ in 0..2 {
            hand.add(vec![message.clone()], now, now + lasts);
            let row = Waiting { message: message.clone(), asked: now, trusted_until: now + lasts, place: 0 };
            hand.lock().take_off(row, now);
        }
        hand.landed(&message);
        assert_eq!(allowed(), Some(Allowed::AfterOther), "the other is under way");
        hand.landed(&message);
        assert_eq!(allowed(), Some(Allowed::Now));
    }
}
