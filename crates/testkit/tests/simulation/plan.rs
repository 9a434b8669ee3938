//! What a seed draws before a run begins: the settings of the relays, the load, and which faults there are and how often.

use std::time::Duration;

use postrider::BreakerConfig;
use postrider::store::{Delivered, Order};

use super::chance::Chance;

/// Messages that fail for good are fewer than would open a breaker: a sink that is down costs no attempts, so they would
/// never be given up.
pub const MOST_DOOMED: u64 = 3;

#[derive(Debug, Clone)]
pub struct Plan {
    pub relays: usize,
    pub producers: usize,
    /// Transactions of each producer.
    pub transactions: u64,
    /// For how long there are faults.
    pub active: Duration,
    pub tenants: u64,
    /// Messages per second and at the same time of each tenant, if they are limited.
    pub tenant_limit: Option<(u32, u32)>,
    pub order: Order,
    pub delivered: Delivered,
    pub purge_after: Option<Duration>,
    pub batch: u32,
    pub concurrency: usize,
    pub sink_batch: usize,
    pub sink_keeps_order: bool,
    pub lease: Duration,
    pub poll: Duration,
    pub sweep: Duration,
    pub publish_timeout: Duration,
    pub store_timeout: Duration,
    pub grace: Duration,
    pub max_attempts: u32,
    pub backoff: (Duration, Duration),
    pub breaker: BreakerConfig,
    /// The longest way of a statement, or of its answer, when all is well.
    pub latency: Duration,
    /// The longest publish when all is well.
    pub publish_takes: Duration,
    pub faults: Faults,
}

/// How often something goes wrong. Per mille of calls, and of the moments at which something may happen to a relay.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The time between two such moments, on average.
    pub every: Duration,
    pub store: u64,
    pub sink: u64,
    pub crash: u64,
    pub fuse: u64,
    pub freeze: u64,
    pub restart: u64,
    pub jump: u64,
    pub database_down: u64,
    pub sink_down: u64,
}

impl Plan {
    pub fn draw(chance: &Chance) -> Self {
        let lease = chance.pick(&[1_000, 1_500, 3_000].map(Duration::from_millis));
        let order = chance.pick(&[Order::None, Order::Key]);
        let first_pause = chance.millis(50..=300);
        let base_delay = chance.millis(20..=200);
        let batch = chance.number(1..=12);
        let publish_timeout = chance.pick(&[lease / 4, lease, lease * 2, lease * 2]);
        Self {
            relays: chance.size(1..=4),
            producers: chance.size(1..=3),
            transactions: chance.number(3..=8),
            active: chance.millis(2_000..=8_000),
            tenants: chance.number(0..=3),
            tenant_limit: chance.happens(150).then_some((5, 1)),
            order,
            delivered: chance.pick(&[Delivered::Keep, Delivered::Delete]),
            purge_after: chance.happens(200).then(|| chance.millis(0..=2_000)),
            batch: u32::try_from(batch).unwrap_or(1),
            concurrency: chance.size(1..=6),
            sink_batch: chance.pick(&[1, 1, 3, 5]),
            sink_keeps_order: order == Order::Key && chance.happens(500),
            lease,
            poll: (lease / 3).min(chance.millis(50..=500)),
            sweep: chance.part_of(lease / 2).max(Duration::from_millis(50)),
            publish_timeout,
            store_timeout: chance.pick(&[lease / 3, lease / 6]),
            grace: chance.pick(&[Duration::ZERO, lease, lease * 3]),
            max_attempts: u32::try_from(chance.pick(&[1, 2, 3, 3, 5, 10])).unwrap_or(1),
            backoff: (base_delay, base_delay * 8),
            breaker: BreakerConfig {
                failures: u32::try_from(chance.number(MOST_DOOMED + 1..=12)).unwrap_or(10),
                first_pause,
                longest_pause: first_pause * 4,
            },
            latency: chance.millis(0..=8),
            publish_takes: chance
                .pick(&[0, 1, 3, 3].map(|quarters| Duration::from_millis(5) + publish_timeout / 4 * quarters)),
            faults: Faults::draw(chance),
        }
    }
}

impl Faults {
    /// One run in eight has restarts only, so that nothing at all may be repeated. The others have some kinds of faults and
    /// not others, seldom or often.
    fn draw(chance: &Chance) -> Self {
        let restart = chance.pick(&[0, 200]);
        let every = chance.millis(100..=1_500);
        if chance.happens(125) {
            return Self { every, restart, ..Self::default() };
        }
        let some = |of: &[u64]| if chance.happens(500) { chance.pick(of) } else { 0 };
        Self {
            every,
            restart,
            store: some(&[5, 20, 80, 250]),
            sink: some(&[20, 80, 300]),
            crash: some(&[100, 400]),
            fuse: some(&[100, 400]),
            freeze: some(&[100, 300]),
            jump: some(&[100, 200]),
            database_down: some(&[50, 100]),
            sink_down: some(&[50, 100]),
        }
    }
}
