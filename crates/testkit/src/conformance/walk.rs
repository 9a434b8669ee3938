//! I6: whatever verbs come in whatever order, every change of a row is an edge of the state machine.
//!
//! A walk draws verbs by chance, with live and stale leases alike, and looks at all rows before and after each. A
//! settle must be done exactly when its lease was the live one; attempts grow by one with a claim, shrink by one with
//! a release, begin again with a replay, and never change otherwise. What a table has no column for is not looked at; one that counts
//! failures takes an attempt back with an ack.

use std::collections::HashMap;
use std::time::Duration;

use postrider::layout::Ability;
use postrider::state::{Event, transition};
use postrider::store::{ClaimOrder, ClaimRequest, Delivered, Finished, Scope};
use postrider::{Lease, Settled, State};
use uuid::Uuid;

use super::harness::{Harness, RowView};
use super::scene::*;

const STEPS: usize = 250;
const ROWS: usize = 6;
const ALLOWED: i32 = 4;

/// Chance from a seed, so that a walk that fails can be walked again.
struct Chance(u64);

impl Chance {
    /// A number below `end` (SplitMix64).
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("it is below a usize")
    }
}

/// What a step did: the event, and the settled leases with their answers.
struct Step {
    event: Option<Event>,
    settled: Vec<(Lease, Settled)>,
}

struct Walk<'a, H> {
    h: &'a H,
    chance: Chance,
    workers: [Uuid; 2],
    leases: Vec<Lease>,
    /// The last claim of each row.
    latest: HashMap<Uuid, Lease>,
}

impl<H: Harness> Walk<'_, H> {
    async fn step(&mut self) -> Step {
        match self.chance.below(12) {
            0..=2 => self.claim().await,
            3 => self.settle(Event::Ack).await,
            4 | 5 => self.settle(Event::Nack).await,
            6 => self.settle(Event::Bury).await,
            7 => self.settle(Event::Release).await,
            8 => {
                self.h.sweep(ALLOWED).await;
                Step { event: Some(Event::Sweep), settled: Vec::new() }
            }
            9 => {
                self.h.store().replay(&replay_all()).await.expect("replayed");
                Step { event: Some(Event::Replay), settled: Vec::new() }
            }
            10 => self.bystanders().await,
            _ => {
                let seconds = self.chance.below(40);
                self.h.pass_time(Duration::from_secs(seconds as u64)).await;
                Step { event: None, settled: Vec::new() }
            }
        }
    }

    async fn claim(&mut self) -> Step {
        let is_fair = self.h.store().capabilities().fair;
        let order = match self.chance.below(4) {
            0 => ClaimOrder::Suspects,
            1 if is_fair => ClaimOrder::Fair { after: None },
            _ => ClaimOrder::Due,
        };
        let worker = self.workers[self.chance.below(2)];
        let limit = u32::try_from(1 + self.chance.below(4)).expect("small");
        let claimed = self.h.claim(&ClaimRequest { order, limit, max_attempts: ALLOWED, ..request(worker) }).await;
        self.leases.extend(claimed.iter().map(|message| message.lease));
        self.latest.extend(claimed.iter().map(|message| (message.id, message.lease)));
        Step { event: Some(Event::Claim), settled: Vec::new() }
    }

    /// Settles up to three leases, live or stale. A released lease is never used again, as the seam asks.
    async fn settle(&mut self, event: Event) -> Step {
        let mut leases: Vec<Lease> = Vec::new();
        for _ in 0..3.min(self.leases.len()) {
            let drawn = self.leases[self.chance.below(self.leases.len())];
            if leases.iter().all(|lease| lease.id != drawn.id) {
                leases.push(drawn);
            }
        }
        let store = self.h.store();
        let delay = Duration::from_secs(self.chance.below(5) as u64);
        let answers = match event {
            Event::Ack => store.ack(&leases, Delivered::Keep).await,
            Event::Nack => store.nack(&leases.iter().map(|lease| nack(*lease, delay)).collect::<Vec<_>>()).await,
            Event::Bury => store.bury(&leases.iter().map(|lease| bury(*lease)).collect::<Vec<_>>()).await,
            _ => store.release(&leases.iter().map(|lease| release(*lease)).collect::<Vec<_>>()).await,
        };
        let answers = answers.expect("the store settles");
        if event == Event::Release {
            self.leases.retain(|lease| !leases.contains(lease));
        }
        Step { event: Some(event), settled: leases.into_iter().zip(answers).collect() }
    }

    /// Verbs that move no row: renewing, purging nothing of that age, counting.
    async fn bystanders(&mut self) -> Step {
        let store = self.h.store();
        store.extend(&self.leases, LEASE).await.expect("extended");
        store.purge(&purge(Finished::Delivered, HOUR * 1_000)).await.expect("purged");
        store.purge(&purge(Finished::Dead, HOUR * 1_000)).await.expect("purged");
        store.stats(&Scope::all()).await.expect("counted");
        store.next_due(&Scope::all()).await.expect("looked");
        Step { event: None, settled: Vec::new() }
    }
}

fn check_row<H: Harness>(before: &RowView, after: &RowView, event: Option<Event>) {
    if before.status != after.status {
        let event = event.expect("only a verb moves a row");
        assert_eq!(transition(before.status, event), Some(after.status), "{event:?} is no such edge");
    }
    let change = after.attempts - before.attempts;
    match event {
        Some(Event::Claim) if change != 0 => assert_eq!((change, after.status), (1, State::Processing)),
        Some(Event::Release) if change != 0 => assert_eq!((change, after.status), (-1, State::Pending)),
        Some(Event::Ack) if change != 0 && !H::can(Ability::CountsClaims) => {
            assert_eq!((change, after.status), (-1, State::Delivered));
        }
        Some(Event::Replay) if change != 0 => assert_eq!((after.attempts, after.status), (0, State::Pending)),
        _ => assert_eq!(change, 0, "attempts change with claims, releases and replays only"),
    }
    assert_eq!(after.status == State::Processing, after.locked_until.is_some(), "leased if and only if processing");
    if H::can(Ability::Worker) {
        assert_eq!(after.locked_by.is_some(), after.locked_until.is_some());
    }
    if H::can(Ability::DeliveredAt) {
        assert_eq!(after.status == State::Delivered, after.delivered_at.is_some());
    }
    assert!((0..=after.max_attempts.unwrap_or(ALLOWED)).contains(&after.attempts));
}

fn check_settled<H: Harness>(
    before: &[RowView],
    after: &[RowView],
    lease: &Lease,
    latest: &HashMap<Uuid, Lease>,
    answer: Settled,
) {
    let find = |rows: &[RowView]| rows.iter().find(|row| row.id == lease.id).cloned().expect("rows stay");
    let (was, is) = (find(before), find(after));
    // Where the row says who has it, that and the number are the fence. Otherwise it is the last claim, whoever made it.
    let is_mine = match H::can(Ability::Worker) {
        true => was.locked_by == Some(lease.worker),
        false => {
            latest.get(&lease.id).is_some_and(|latest| latest.worker == lease.worker && latest.address == lease.address)
        }
    };
    let live = was.status == State::Processing && is_mine && was.attempts == lease.attempt;
    let expected = if live { Settled::Done } else { Settled::LeaseLost };
    assert_eq!(answer, expected);
    if live {
        assert_ne!(is.status, State::Processing, "what is done is written");
    } else {
        assert_eq!(is, was, "a stale settle touches nothing");
    }
}

async fn walk<H: Harness>(h: &H, seed: u64) {
    h.put_all((0..ROWS).map(|_| message())).await;
    let workers = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let mut walk = Walk { h, chance: Chance(seed), workers, leases: Vec::new(), latest: HashMap::new() };
    let mut before = h.rows().await;
    for _ in 0..STEPS {
        let step = walk.step().await;
        let after = h.rows().await;
        assert_eq!(before.len(), after.len(), "no row comes or goes");
        for (was, is) in before.iter().zip(&after) {
            assert_eq!(was.id, is.id);
            check_row::<H>(was, is, step.event);
        }
        for (lease, answer) in &step.settled {
            check_settled::<H>(&before, &after, lease, &walk.latest, *answer);
        }
        before = after;
    }
}

pub async fn i6_a_random_walk_keeps_to_the_state_machine_seed_1(h: impl Harness) {
    walk(&h, 1).await;
}

pub async fn i6_a_random_walk_keeps_to_the_state_machine_seed_2(h: impl Harness) {
    walk(&h, 2).await;
}

pub async fn i6_a_random_walk_keeps_to_the_state_machine_seed_3(h: impl Harness) {
    walk(&h, 3).await;
}

pub async fn i6_a_random_walk_keeps_to_the_state_machine_seed_4(h: impl Harness) {
    walk(&h, 4).await;
}
