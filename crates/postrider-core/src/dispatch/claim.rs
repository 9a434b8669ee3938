//! Claiming: takes due rows as long as there is room in hand, and sleeps on the doorbell when there are none.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::hand::trusted_until;
use super::shared::Shared;
use crate::breaker::Gate;
use crate::doorbell::{Armed, Doorbell};
use crate::store::{ClaimOrder, ClaimRequest, Claimed, ClaimedMessage, Lane, Order, StoreError};

/// After a small claim, how long to let rows gather before the next one.
const GATHER: Duration = Duration::from_millis(3);
/// The shortest and longest pause while a producer's open transaction keeps the bell from being armed.
const BUSY_PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// The shortest sleep; what is due already and was not claimed is in somebody else's hands.
const SHORTEST_SLEEP: Duration = Duration::from_millis(20);
/// How often to ring for other relays at most.
const RING_INTERVAL: Duration = Duration::from_millis(200);

/// Claims until the dispatcher stops.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut claimer = Claimer::new(shared.clone());
    let mut failures = shared.pauses();
    while !shared.stop.is_cancelled() {
        shared.pulse.turned();
        match claimer.round().await {
            Ok(()) => failures = shared.pauses(),
            Err(_) => {
                let pause = failures.next().unwrap_or_default();
                shared.unless_stopped(sleep(pause)).await;
            }
        }
    }
    claimer.disarm().await;
}

struct Claimer {
    shared: Arc<Shared>,
    bell: Option<Box<dyn Doorbell>>,
    /// Armed, and looked since: the next empty claim may sleep.
    looked: bool,
    busy_pause: Duration,
    backlog: bool,
    turns: FairTurns,
    thorough: Thorough,
    /// The latest claim took nothing, and has not looked at everything.
    overlooks: bool,
    limit: u32,
    rang: Option<Instant>,
    said_polling: bool,
    next_suspect: Instant,
    typical_size: usize,
    /// When the latest claim was asked for.
    asked: Instant,
}

impl Claimer {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            limit: shared.config.batch_size,
            shared,
            bell: None,
            looked: false,
            busy_pause: BUSY_PAUSE.0,
            backlog: false,
            turns: FairTurns::default(),
            thorough: Thorough::default(),
            overlooks: false,
            rang: None,
            said_polling: false,
            next_suspect: Instant::now(),
            typical_size: 0,
            asked: Instant::now(),
        }
    }

    /// One look for work, and what follows from it. Its error was logged already.
    async fn round(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        let paused = self.shared.paused_until().take().filter(|then| *then > now);
        let gate = paused.map_or_else(|| self.shared.gate(now), Gate::ShutUntil);
        match gate {
            Gate::ShutUntil(then) => {
                self.disarm().await;
                super::keep::give_back_all(&self.shared).await;
                self.shared.unless_stopped(sleep_until(then)).await;
                Ok(())
            }
            Gate::Trial => self.trial().await,
            Gate::Open if self.shared.has_suspects() && now >= self.next_suspect => self.claim_suspect().await,
            Gate::Open => self.claim_due().await,
        }
    }

    async fn claim_due(&mut self) -> Result<(), StoreError> {
        self.wait_for_room().await;
        if self.shared.stop.is_cancelled() || !self.shared.may_claim() {
            return Ok(());
        }
        let fair = self.backlog && self.shared.store.capabilities().fair;
        let (order, limit) = (self.turns.next(fair, Instant::now()), self.next_limit());
        self.asked = Instant::now();
        let fair = order != ClaimOrder::Due;
        let ordered = !fair && self.shared.config.order == Order::Key;
        let thorough = ordered && self.thorough.is_next(self.asked);
        let taken = match self.backlog && !fair && self.has_room_for_two(limit) {
            // With a backlog two claims overlap: one is read while the database works on the other.
            true => {
                let claim = || claim(&self.shared, ClaimOrder::Due, limit, 2, false);
                let (one, other) = tokio::join!(claim(), claim());
                // Both go into hand before an error of either ends the round.
                let (one, other) = (self.put_in_hand(one, true).await, self.put_in_hand(other, true).await);
                one? + other?
            }
            false => {
                let claimed = claim(&self.shared, order, limit, 1, thorough).await;
                if thorough {
                    self.thorough.done(self.asked, Instant::now());
                }
                self.put_in_hand(claimed, true).await?
            }
        };
        if !fair {
            self.overlooks = ordered && !thorough && taken == 0;
        }
        self.backlog = taken >= limit as usize || (self.backlog && fair);
        if taken > 0 {
            self.awake(taken, limit).await;
        } else if self.shared.has_suspects() {
            self.shared.unless_stopped(sleep_until(self.next_suspect)).await;
        } else if !fair {
            self.idle().await?;
        }
        Ok(())
    }

    /// Whether two claims may overlap. Not if there is one call at a time: then messages arrive in the order in which they were
    /// enqueued, and two claims that overlap take turns in no order. With order per key the second would find that the first
    /// has every key.
    fn has_room_for_two(&self, limit: u32) -> bool {
        let (rows, bytes) = self.shared.hand.load();
        let config = &self.shared.config;
        if config.concurrency == 1 || config.order == Order::Key {
            return false;
        }
        rows + 2 * limit as usize <= config.max_rows && bytes < config.max_bytes / 2
    }

    /// Rows that would have to be given back are not worth claiming: the limit follows what gets published in time.
    fn next_limit(&mut self) -> u32 {
        let batch = self.shared.config.batch_size;
        self.limit = match self.shared.hand.take_given_back() {
            true => (self.limit / 2).max(1),
            false => (self.limit + self.limit.div_ceil(4)).min(batch),
        };
        let (rows, bytes) = self.shared.hand.load();
        let free = self.shared.config.max_rows.saturating_sub(rows);
        // The store bounds a claim by what rows take on disk, compressed perhaps; in hand they may be far larger.
        let fitting = self.shared.config.max_bytes.saturating_sub(bytes) / self.typical_size.max(1);
        self.limit.min(u32::try_from(free.min(fitting)).unwrap_or(u32::MAX)).max(1)
    }

    async fn wait_for_room(&mut self) {
        let (max_rows, max_bytes) = (self.shared.config.max_rows, self.shared.config.max_bytes);
        let enough = (self.limit as usize / 2).max(1);
        let fits = move |rows: usize, bytes: usize| rows == 0 || (rows + enough <= max_rows && bytes < max_bytes);
        let (rows, bytes) = self.shared.hand.load();
        if !fits(rows, bytes) {
            self.ring_for_others().await;
            let room_or_shut = async {
                tokio::select! {
                    biased;
                    () = self.shared.shut.notified() => {}
                    () = self.shared.hand.until(fits) => {}
                }
            };
            self.shared.unless_stopped(room_or_shut).await;
        }
    }

    /// Claims rows that are published alone, and puts them into hand; answers how many.
    async fn claim(&mut self, order: ClaimOrder, limit: u32) -> Result<usize, StoreError> {
        let claimed = claim(&self.shared, order, limit, 1, true).await;
        self.put_in_hand(claimed, false).await
    }

    /// Puts claimed rows into hand, and if they are `limited` puts those off whose tenants are over their limits. Answers how
    /// many were claimed.
    async fn put_in_hand(&mut self, claim: Result<Claim, StoreError>, limited: bool) -> Result<usize, StoreError> {
        let Claim { mut claimed, asked, fair } = claim?;
        if fair {
            self.turns.taken(&claimed.messages, claimed.last_lane, asked.elapsed());
        }
        let taken = claimed.messages.len();
        self.shared.metrics.claimed(taken);
        let size: usize = claimed.messages.iter().map(ClaimedMessage::size).sum();
        let Some(typical) = size.checked_div(taken) else { return Ok(0) };
        self.typical_size = typical;
        let put_off = match limited {
            true => self.shared.hand.put_off(&mut claimed.messages, asked),
            false => Vec::new(),
        };
        self.shared.hand.add(claimed.messages, asked, trusted_until(asked, self.shared.config.lease));
        super::keep::put_off(&self.shared, &put_off).await;
        Ok(taken)
    }

    /// There was work: producers need not ring. A small claim is followed by a short pause, so that the next one
    /// finds more than a row or two.
    async fn awake(&mut self, taken: usize, limit: u32) {
        self.disarm().await;
        if taken < limit as usize / 4 {
            self.shared.unless_stopped(sleep(GATHER)).await;
        }
    }

    async fn disarm(&mut self) {
        self.looked = false;
        self.busy_pause = BUSY_PAUSE.0;
        let Some(bell) = &mut self.bell else { return };
        match timeout(self.shared.config.store_timeout, bell.disarm()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.shared.metrics.store_failed("doorbell", &error),
            // A bell that does not answer is taken down; the next sleep hangs a new one.
            Err(_) => self.bell = None,
        }
    }

    /// There was no work: arm the bell, look once more, sleep.
    async fn idle(&mut self) -> Result<(), StoreError> {
        if self.looked {
            return self.sleep(true).await;
        }
        match self.arm().await {
            Ok(Armed::Yes) => self.looked = true,
            Ok(Armed::Busy) => {
                self.shared.unless_stopped(sleep(self.busy_pause)).await;
                self.busy_pause = (self.busy_pause * 2).min(BUSY_PAUSE.1);
            }
            Ok(Armed::Never) => {
                self.say_that_it_polls();
                self.sleep(false).await?;
            }
            Err(error) => {
                self.shared.metrics.store_failed("doorbell", &error);
                self.sleep(false).await?;
            }
        }
        Ok(())
    }

    fn say_that_it_polls(&mut self) {
        if !std::mem::replace(&mut self.said_polling, true) {
            let config = &self.shared.config;
            tracing::warn!(dispatcher = %config.name, every = ?config.poll_interval, "no doorbell here; polling");
        }
    }

    async fn arm(&mut self) -> Result<Armed, StoreError> {
        let limit = self.shared.config.store_timeout;
        let silent =
            |_| StoreError::new(crate::StoreErrorKind::Unavailable, "arm the doorbell failed: no answer; polling");
        if self.bell.is_none() {
            let bell = self.shared.store.doorbell(&self.shared.config.scope);
            self.bell = Some(timeout(limit, bell).await.map_err(silent)??);
        }
        let Some(bell) = &mut self.bell else { return Ok(Armed::Never) };
        match timeout(limit, bell.arm()).await {
            Ok(armed) => armed,
            Err(elapsed) => {
                // The connection may be dead or hold an answer that nobody read: open a new one next time.
                self.bell = None;
                Err(silent(elapsed))
            }
        }
    }

    /// Sleeps until somebody rings, a row becomes due, or the poll interval is over.
    async fn sleep(&mut self, on_bell: bool) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let next_due = next_due(&shared, self.asked).await?;
        let most = match self.overlooks {
            true => self.thorough.wait(Instant::now()).min(shared.config.poll_interval),
            false => shared.config.poll_interval,
        };
        let nap = next_due.unwrap_or(Duration::MAX).clamp(SHORTEST_SLEEP, most.max(SHORTEST_SLEEP));
        let rung = async {
            match &mut self.bell {
                Some(bell) if on_bell => bell.wait().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => {}
            rung = rung => if let Err(error) = rung {
                shared.metrics.store_failed("doorbell", &error);
                self.looked = false;
            },
            () = shared.freed.notified() => {}
            () = sleep(nap) => {}
        }
        if self.looked {
            // An armed bell is checked here, so that a dead connection is noticed.
            self.looked = matches!(self.arm().await, Ok(Armed::Yes));
        }
        Ok(())
    }

    /// There is more than fits into our hand: wake relays that sleep.
    async fn ring_for_others(&mut self) {
        if self.rang.is_none_or(|rang| rang.elapsed() > RING_INTERVAL) {
            self.rang = Some(Instant::now());
            let ring = self.shared.store.ring(&self.shared.config.scope);
            let _logged = self.shared.call("ring", ring).await;
        }
    }

    /// The breaker's pause is over: ask the sink, then risk one message on it.
    async fn trial(&mut self) -> Result<(), StoreError> {
        super::keep::give_back_all(&self.shared).await;
        self.shared.hand_empty().await;
        // A sink that panics is not ready.
        let ready = AssertUnwindSafe(self.shared.sink.ready()).catch_unwind();
        let ready = timeout(self.shared.config.publish_timeout, ready).await;
        if !matches!(ready, Ok(Ok(Ok(())))) {
            tracing::debug!(dispatcher = %self.shared.config.name, "the sink is not ready");
            self.shared.breaker().trial_failed(Instant::now());
            return Ok(());
        }
        if self.shared.stop.is_cancelled() {
            return Ok(());
        }
        match self.claim(ClaimOrder::Due, 1).await? {
            0 => self.idle().await,
            _ => {
                self.shared.hand_empty().await;
                Ok(())
            }
        }
    }

    /// A row that may kill its worker is published with nothing else in hand. Ordinary claims get as much time as it
    /// took before the next one, so that a thousand of them do not hold up everything else.
    async fn claim_suspect(&mut self) -> Result<(), StoreError> {
        let begun = Instant::now();
        self.shared.hand_empty().await;
        if self.shared.stop.is_cancelled() || !self.shared.may_claim() {
            return Ok(());
        }
        match self.claim(ClaimOrder::Suspects, 1).await? {
            0 => self.shared.note_suspects(false),
            _ => self.shared.hand_empty().await,
        }
        self.next_suspect = Instant::now() + begun.elapsed().max(GATHER);
        Ok(())
    }
}

/// What a claim took, and when it was asked for.
struct Claim {
    claimed: Claimed,
    asked: Instant,
    fair: bool,
}

/// Claims, as one of so many claims `at_once`. Runs to its end even when the dispatcher is told to stop, because rows
/// whose claim nobody waited for would be stranded until their lease ran out.
async fn claim(
    shared: &Shared,
    order: ClaimOrder,
    limit: u32,
    at_once: usize,
    thorough: bool,
) -> Result<Claim, StoreError> {
    let config = &shared.config;
    let fair = matches!(order, ClaimOrder::Fair { .. });
    let request = ClaimRequest {
        scope: config.scope.clone(),
        worker: config.worker,
        limit,
        max_bytes: (config.max_bytes.saturating_sub(shared.hand.load().1) / at_once) as u64,
        lease: config.lease,
        max_attempts: config.max_attempts,
        order,
        waits: config.order,
        followers: followers(shared, at_once),
        thorough,
    };
    let asked = Instant::now();
    let claimed = shared.call("claim", shared.store.claim(&request)).await?;
    Ok(Claim { claimed, asked, fair })
}

/// Those that wait in hand for others of their keys get half of it at most: what waits for nobody has room in any case.
fn followers(shared: &Shared, at_once: usize) -> u32 {
    match shared.config.order {
        Order::None => 0,
        Order::Key => {
            let room = (shared.config.max_rows / 2).saturating_sub(shared.hand.in_line());
            u32::try_from(room / at_once).unwrap_or(u32::MAX)
        }
    }
}

/// How long until the passing of time gives us something to claim. With order per key, rows that had been due when we
/// looked, at `asked`, wait for others: looking again and again would not help them.
async fn next_due(shared: &Shared, asked: Instant) -> Result<Option<Duration>, StoreError> {
    let (store, scope) = (&shared.store, &shared.config.scope);
    match shared.config.order {
        Order::None => shared.call("next_due", store.next_due(scope)).await,
        Order::Key => {
            let since = asked.elapsed() + SHORTEST_SLEEP;
            shared.call("next_due", store.next_coming(scope, since)).await
        }
    }
}

/// When an ordered claim looks at everything. One that reads a backlog to its end, to find that every key is under way, takes
/// long; one that never does leaves what stands behind a busy key where it is. So now and then, and the more rarely the longer it
/// took.
#[derive(Default)]
struct Thorough {
    /// Not before.
    next: Option<Instant>,
}

/// The shortest time between two of them, and the part of all time that they get: one in so many.
const THOROUGH: (Duration, u32) = (Duration::from_millis(250), 8);

impl Thorough {
    fn is_next(&self, now: Instant) -> bool {
        self.wait(now).is_zero()
    }

    /// How long until the next one.
    fn wait(&self, now: Instant) -> Duration {
        self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
    }

    fn done(&mut self, begun: Instant, ended: Instant) {
        let (shortest, part) = THOROUGH;
        self.next = Some(ended + shortest.max((ended - begun) * (part - 1)));
    }
}

/// When a claim is a fair one. While there is a backlog fair claims take every other turn, so that one hot lane does
/// not starve the rest; the turns between keep the oldest rows moving. As long as there is but one lane they are not
/// worth their cost and become rare; but where a slow sink makes claims rare, they are not to be rarer still.
#[derive(Default)]
struct FairTurns {
    since: u32,
    pause: u32,
    lane: Option<Lane>,
    latest: Option<Instant>,
    /// How long the latest took.
    took: Duration,
}

/// The longest pause between two fair claims, in claims, and in time if there is a claim between them.
const LONGEST_FAIR_PAUSE: (u32, Duration) = (16, Duration::from_millis(250));
/// While there is but one lane, a fair claim gets no more than one part of the time in so many.
const FAIR_PART: u32 = 8;

impl FairTurns {
    fn next(&mut self, backlog: bool, now: Instant) -> ClaimOrder {
        self.since += 1;
        let longest = LONGEST_FAIR_PAUSE.1.max(self.took * FAIR_PART);
        let overdue = self.latest.is_none_or(|latest| now >= latest + longest);
        let pause = if overdue { 1 } else { self.pause.max(1) };
        if !backlog || self.since <= pause {
            return ClaimOrder::Due;
        }
        (self.since, self.latest) = (0, Some(now));
        // Kept until the claim has succeeded: one that fails is made again from the same lane.
        ClaimOrder::Fair { after: self.lane.clone() }
    }

    fn taken(&mut self, messages: &[ClaimedMessage], last: Option<Lane>, took: Duration) {
        self.took = took;
        let lane = |message: &ClaimedMessage| (message.namespace.clone(), message.topic.clone(), message.tenant_id);
        let several =
            messages.first().map(lane).is_some_and(|first| messages.iter().any(|message| lane(message) != first));
        self.pause = match several || last.is_some() {
            true => 0,
            false => (self.pause * 2).clamp(1, LONGEST_FAIR_PAUSE.0),
        };
        self.lane = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of ordinary claims before each fair one, if a claim takes so long.
    fn pauses(claim: Duration) -> Vec<usize> {
        let (mut turns, mut now, mut ordinary) = (FairTurns::default(), Instant::now(), 0);
        let mut pauses = Vec::new();
        for _ in 0..200 {
            now += claim;
            match turns.next(true, now) {
                ClaimOrder::Fair { .. } => {
                    pauses.push(std::mem::take(&mut ordinary));
                    turns.taken(&[], None, Duration::ZERO);
                }
                _ => ordinary += 1,
            }
        }
        pauses
    }

    #[test]
    fn r60_claims_that_look_at_everything_get_an_eighth_of_the_time() {
        let (mut thorough, now) = (Thorough::default(), Instant::now());
        assert!(thorough.is_next(now), "the first");
        thorough.done(now, now + Duration::from_millis(1));
        assert_eq!(thorough.wait(now + Duration::from_millis(1)), THOROUGH.0);
        let ended = now + Duration::from_secs(1);
        thorough.done(now, ended);
        assert!(!thorough.is_next(ended + Duration::from_millis(6_999)));
        assert!(thorough.is_next(ended + Duration::from_secs(7)));
    }

    #[test]
    fn r24_a_fair_claim_that_fails_is_made_again_from_the_same_lane() {
        let (mut turns, mut now) = (FairTurns::default(), Instant::now());
        let lane = Lane { namespace: "shop".into(), topic: "t".into(), tenant: uuid::Uuid::nil() };
        turns.taken(&[], Some(lane.clone()), Duration::ZERO);
        let mut fair = || loop {
            now += Duration::from_secs(1);
            if let ClaimOrder::Fair { after } = turns.next(true, now) {
                return after;
            }
        };
        assert_eq!(fair(), Some(lane.clone()));
        assert_eq!(fair(), Some(lane), "nothing was taken");
    }

    #[test]
    fn r24_with_one_lane_fair_claims_become_rare_unless_claims_are_rare() {
        assert_eq!(pauses(Duration::from_millis(1)).last(), Some(&16));
        assert!(pauses(Duration::from_millis(300)).iter().all(|pause| *pause == 1), "a slow sink");
    }
}
