//! Limits per tenant: messages per second, and messages that are published at the same time.
//!
//! A message over its tenant's limit waits in hand if that takes a moment only. What would wait for longer is put off when it is
//! claimed: given back with its attempt, to be due about when it can be sent. Messages of a tenant are put off one behind the
//! other, each to its own time, so that a backlog is not claimed over and over again: a message is put off once for each
//! [`LONGEST_DELAY`] that it has to wait. Their times are rounded to [`STEP`]s that all tenants share, so that one claim finds
//! what has become due of all of them.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::config::{ConfigError, in_range};
use crate::store::ClaimedMessage;

/// The longest wait in hand.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The part of a lease that a message waits in hand at most.
const PART_OF_LEASE: u32 = 6;
/// When messages that were put off come again: at multiples of this.
const STEP: Duration = Duration::from_millis(500);
/// For how long a message is put off at most. When a limit is raised or lifted, what was put off comes within this time.
pub const LONGEST_DELAY: Duration = Duration::from_secs(600);
/// How long a publish takes, before the first one of a tenant has been seen.
const FIRST_GUESS: Duration = Duration::from_millis(50);
/// How much of the average a new publish is.
const NEWEST: u32 = 8;

/// What a tenant may have; what is not given is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantLimit {
    /// Messages per second.
    pub rate: Option<u32>,
    /// Messages at once after a time without any; as many as `rate` unless this is given.
    pub burst: Option<u32>,
    /// Messages that are published at the same time.
    pub in_flight: Option<u32>,
}

impl TenantLimit {
    /// No limit.
    pub fn none() -> Self {
        Self::default()
    }

    /// So many messages per second, and as many at once after a time without any.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.rate = Some(per_second);
        self
    }

    /// So many messages at once after a time without any.
    pub fn burst(mut self, messages: u32) -> Self {
        self.burst = Some(messages);
        self
    }

    /// So many messages that are published at the same time.
    pub fn in_flight(mut self, messages: u32) -> Self {
        self.in_flight = Some(messages);
        self
    }

    /// Everything that a dispatcher would refuse of it.
    pub fn problems(&self) -> Vec<ConfigError> {
        let within = |setting, given: Option<u32>| match given {
            Some(given) => in_range(setting, given, 1, 1_000_000, "from 1 to 1000000"),
            None => Ok(()),
        };
        let mut found =
            vec![within("rate", self.rate), within("burst", self.burst), within("in_flight", self.in_flight)];
        if let (Some(burst), None) = (self.burst, self.rate) {
            let (given, allowed) = (burst.to_string(), "given together with a rate, or not at all");
            found.push(Err(ConfigError::OutOfRange { setting: "burst", given, allowed }));
        }
        found.into_iter().filter_map(Result::err).collect()
    }

    /// What it does not say is as in another one. A burst belongs to its rate.
    fn or(self, other: Self) -> Self {
        let burst = if self.rate.is_some() { self.burst } else { self.burst.or(other.burst) };
        Self { rate: self.rate.or(other.rate), burst, in_flight: self.in_flight.or(other.in_flight) }
    }
}

/// What tenants may have, of one dispatcher: two relays of a source let twice as much through. Messages without a tenant are
/// not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantLimits {
    all: TenantLimit,
    tenants: HashMap<Uuid, TenantLimit>,
}

impl TenantLimits {
    /// The same limit for each tenant.
    pub fn each(limit: TenantLimit) -> Self {
        Self { all: limit, tenants: HashMap::new() }
    }

    /// Another limit for one tenant. What it does not say is as for the others.
    pub fn tenant(mut self, tenant: Uuid, limit: TenantLimit) -> Self {
        self.tenants.insert(tenant, limit);
        self
    }

    /// What a tenant may have.
    pub fn of(&self, tenant: Uuid) -> TenantLimit {
        self.tenants.get(&tenant).map_or(self.all, |limit| limit.or(self.all))
    }

    /// Whether nobody is limited.
    pub fn is_empty(&self) -> bool {
        let none = TenantLimit::none();
        self.all == none && self.tenants.values().all(|limit| *limit == none)
    }

    pub(super) fn problems(&self) -> Vec<ConfigError> {
        let single = self.tenants.keys().flat_map(|tenant| self.of(*tenant).problems());
        self.all.problems().into_iter().chain(single).collect()
    }
}

/// How a tenant is doing.
struct Tenant {
    limit: TenantLimit,
    /// When the rate would be used up evenly by what was published so far.
    even: Instant,
    flying: u32,
    waiting: u32,
    /// How long a publish takes, on average.
    takes: Duration,
    /// The time of the last message that was put off.
    put_off_until: Instant,
}

impl Tenant {
    fn new(limit: TenantLimit, now: Instant) -> Self {
        Self { limit, even: now, flying: 0, waiting: 0, takes: FIRST_GUESS, put_off_until: now }
    }

    /// The time between two messages.
    fn interval(&self) -> Duration {
        let by_rate = self.limit.rate.map(|rate| Duration::from_secs(1) / rate.max(1));
        let by_flights = self.limit.in_flight.map(|calls| self.takes / calls.max(1));
        by_rate.max(by_flights).unwrap_or_default()
    }

    /// When the rate lets a message go that has so many before it.
    fn rate_allows_at(&self, now: Instant, before: u32) -> Instant {
        let Some(rate) = self.limit.rate else { return now };
        let (interval, burst) = (Duration::from_secs(1) / rate.max(1), self.limit.burst.unwrap_or(rate));
        let due = self.even.max(now) + interval * before;
        due.checked_sub(interval * burst.saturating_sub(1)).unwrap_or(now).max(now)
    }

    fn has_call(&self) -> bool {
        self.limit.in_flight.is_none_or(|calls| self.flying < calls)
    }

    /// About how long another message would wait for its limits alone.
    fn wait(&self, now: Instant) -> Duration {
        let calls = self.limit.in_flight.unwrap_or(u32::MAX).max(1);
        let over = (self.flying + self.waiting + 1).saturating_sub(calls);
        let for_call = self.takes / calls * over;
        (self.rate_allows_at(now, self.waiting) - now).max(for_call)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.flying == 0 && self.waiting == 0 && self.even <= now && self.put_off_until <= now
    }
}

/// Whether a message of a tenant may be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    Now,
    /// Not before this time.
    At(Instant),
    /// When another message of the tenant has landed.
    AfterOther,
}

/// Keeps the limits of all tenants that have messages in hand.
pub(super) struct Limiter {
    limits: TenantLimits,
    tenants: HashMap<Uuid, Tenant>,
    longest_wait: Duration,
    /// The most messages of limited tenants that wait, all together.
    most_waiting: u32,
    waiting: u32,
    begun: Instant,
}

impl Limiter {
    /// A limiter, if there is anything to limit.
    pub fn new(limits: &TenantLimits, lease: Duration, max_rows: usize, now: Instant) -> Option<Self> {
        (!limits.is_empty()).then(|| Self {
            limits: limits.clone(),
            tenants: HashMap::new(),
            longest_wait: (lease / PART_OF_LEASE).min(LONGEST_WAIT),
            most_waiting: u32::try_from(max_rows / 2).unwrap_or(u32::MAX),
            waiting: 0,
            begun: now,
        })
    }

    /// The tenant, if it is limited.
    fn tenant(&mut self, id: Option<Uuid>, now: Instant) -> Option<&mut Tenant> {
        let id = id?;
        let limit = self.limits.of(id);
        (limit != TenantLimit::none()).then(|| self.tenants.entry(id).or_insert_with(|| Tenant::new(limit, now)))
    }

    /// For how long a claimed message has to be put off; if not at all, it goes into hand.
    pub fn put_off(&mut self, message: &ClaimedMessage, now: Instant) -> Option<Duration> {
        let (longest, crowded, begun) = (self.longest_wait, self.waiting >= self.most_waiting, self.begun);
        let tenant = self.tenant(message.tenant_id, now)?;
        let wait = tenant.wait(now);
        if wait.is_zero() || (wait <= longest && !crowded) {
            return None;
        }
        let until = tenant.put_off_until.max(now + wait) + tenant.interval();
        tenant.put_off_until = until.min(now + LONGEST_DELAY);
        let steps = (tenant.put_off_until - begun).as_millis() / STEP.as_millis();
        let at = begun + STEP * u32::try_from(steps).unwrap_or(u32::MAX);
        // Never at once: it would be claimed again before anything has changed.
        Some(if at > now { at - now } else { STEP })
    }

    /// Notes that a message waits in hand.
    pub fn waits(&mut self, message: &ClaimedMessage, now: Instant) {
        if let Some(tenant) = self.tenant(message.tenant_id, now) {
            tenant.waiting += 1;
            self.waiting += 1;
        }
    }

    /// Notes that a message does not wait any more.
    pub fn waits_no_more(&mut self, message: &ClaimedMessage) {
        if let Some(tenant) = message.tenant_id.and_then(|id| self.tenants.get_mut(&id)) {
            tenant.waiting = tenant.waiting.saturating_sub(1);
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    /// Whether a message of a tenant may be published now.
    pub fn allowed(&self, tenant: Option<Uuid>, now: Instant) -> Allowed {
        let Some(tenant) = tenant.and_then(|id| self.tenants.get(&id)) else { return Allowed::Now };
        if !tenant.has_call() {
            return Allowed::AfterOther;
        }
        match tenant.rate_allows_at(now, 0) {
            at if at > now => Allowed::At(at),
            _ => Allowed::Now,
        }
    }

    /// Notes that a message goes out.
    pub fn takes_off(&mut self, message: &ClaimedMessage, now: Instant) {
        if let Some(tenant) = message.tenant_id.and_then(|id| self.tenants.get_mut(&id)) {
            tenant.flying += 1;
            if let Some(rate) = tenant.limit.rate {
                tenant.even = tenant.even.max(now) + Duration::from_secs(1) / rate.max(1);
            }
        }
    }

    /// Notes that a publish ended, and how long it took if that is known: of two publishes of the same row and attempt only the
    /// first to land is. Answers whether another message may have waited for it.
    pub fn landed(&mut self, message: &ClaimedMessage, took: Option<Duration>) -> bool {
        let Some(tenant) = message.tenant_id.and_then(|id| self.tenants.get_mut(&id)) else { return false };
        tenant.flying = tenant.flying.saturating_sub(1);
        if let Some(took) = took {
            tenant.takes = (tenant.takes * (NEWEST - 1) + took) / NEWEST;
        }
        tenant.limit.in_flight.is_some() && tenant.waiting > 0
    }

    /// Forgets tenants of whom there is nothing to know.
    pub fn forget_idle(&mut self, now: Instant) {
        self.tenants.retain(|_, tenant| !tenant.is_idle(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Lease, RowAddress};
    use crate::store::Payload;

    const LEASE: Duration = Duration::from_secs(30);

    fn message(tenant: u128) -> ClaimedMessage {
        let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "shop".into(), "t".into(), Payload::Json("{}".into()));
        message.tenant_id = Some(Uuid::from_u128(tenant));
        message
    }

    fn limiter(limit: TenantLimit, now: Instant) -> Limiter {
        Limiter::new(&TenantLimits::each(limit), LEASE, 2_000, now).expect("there is a limit")
    }

    /// Puts claimed messages into hand or off; answers how many wait and the delays of the others.
    fn claim(limiter: &mut Limiter, rows: usize, now: Instant) -> (usize, Vec<Duration>) {
        let mut put_off = Vec::new();
        for _ in 0..rows {
            let message = message(1);
            match limiter.put_off(&message, now) {
                Some(delay) => put_off.push(delay),
                None => limiter.waits(&message, now),
            }
        }
        (rows - put_off.len(), put_off)
    }

    #[test]
    fn r24_a_burst_goes_at_once_and_then_the_rate_counts() {
        let (now, one) = (Instant::now(), message(1));
        let mut limiter = limiter(TenantLimit::none().rate(10).burst(3), now);
        limiter.waits(&one, now);
        for _ in 0..3 {
            assert_eq!(limiter.allowed(one.tenant_id, now), Allowed::Now);
            limiter.takes_off(&one, now);
        }
        assert_eq!(limiter.allowed(one.tenant_id, now), Allowed::At(now + Duration::from_millis(100)));
        assert_eq!(limiter.allowed(one.tenant_id, now + Duration::from_millis(100)), Allowed::Now);
        assert_eq!(limiter.allowed(Some(Uuid::from_u128(2)), now), Allowed::Now, "another tenant");
        assert_eq!(limiter.allowed(None, now), Allowed::Now, "no tenant");
    }

    #[test]
    fn r24_what_would_wait_for_long_is_put_off_one_behind_the_other() {
        let now = Instant::now();
        let mut limiter = limiter(TenantLimit::none().rate(100).burst(100), now);
        let (kept, delays) = claim(&mut limiter, 1_000, now);
        assert_eq!(kept, 200, "the burst, and a second's worth");
        assert!(delays.is_sorted(), "they keep their order");
        assert_eq!(delays.last(), Some(&Duration::from_secs(9)), "800 more at 100 per second");
        let mut times = delays.clone();
        times.dedup();
        assert!(times.len() <= 18, "they come in few claims: {times:?}");
    }

    #[test]
    fn r24_nothing_is_put_off_for_longer_than_the_longest_delay() {
        let now = Instant::now();
        let mut limiter = limiter(TenantLimit::none().rate(1), now);
        let (_, delays) = claim(&mut limiter, 5_000, now);
        assert_eq!(delays.iter().max(), Some(&LONGEST_DELAY));
    }

    #[test]
    fn r24_no_more_are_published_at_once_than_may_be() {
        let (now, one) = (Instant::now(), message(1));
        let mut limiter = limiter(TenantLimit::none().in_flight(2), now);
        limiter.waits(&one, now);
        limiter.takes_off(&one, now);
        limiter.takes_off(&one, now);
        assert_eq!(limiter.allowed(one.tenant_id, now), Allowed::AfterOther);
        assert!(limiter.landed(&one, Some(Duration::from_millis(1))), "the one that waits may go");
        assert_eq!(limiter.allowed(one.tenant_id, now), Allowed::Now);
    }

    #[test]
    fn r24_limited_tenants_get_half_of_the_hand_at_most() {
        let now = Instant::now();
        let mut limiter = limiter(TenantLimit::none().rate(1_000_000).burst(1), now);
        let (kept, _) = claim(&mut limiter, 1_900, now);
        assert_eq!(kept, 1_000);
    }

    #[test]
    fn a_limit_of_one_tenant_is_filled_up_from_that_of_all() {
        let all = TenantLimit::none().rate(10).burst(20).in_flight(3);
        let one = Uuid::from_u128(1);
        let of = |limit| TenantLimits::each(all).tenant(one, limit).of(one);
        assert_eq!(of(TenantLimit::none().in_flight(9)), all.in_flight(9));
        assert_eq!(of(TenantLimit::none().rate(5)), TenantLimit::none().rate(5).in_flight(3), "a burst is its rate's");
        assert_eq!(TenantLimits::each(all).of(one), all);
    }

    #[test]
    fn tenants_of_whom_there_is_nothing_to_know_are_forgotten() {
        let (now, one) = (Instant::now(), message(1));
        let mut limiter = limiter(TenantLimit::none().rate(10), now);
        limiter.waits(&one, now);
        limiter.waits_no_more(&one);
        limiter.takes_off(&one, now);
        limiter.landed(&one, Some(Duration::ZERO));
        limiter.forget_idle(now);
        assert_eq!(limiter.tenants.len(), 1, "its rate is in use");
        limiter.forget_idle(now + Duration::from_secs(1));
        assert!(limiter.tenants.is_empty());
    }
}
