//! What an operator sees: metrics through the `metrics` facade, and structured events. Event ids, namespaces,
//! topics, tenants and attempts are in events, and of headers those that name what a message is about; payloads, other
//! headers and error texts of sinks never are (the latter are in the row's `last_error`). Labels hold the dispatcher's name and fixed words, and the tenant if that is asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Label, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use uuid::Uuid;

use crate::message::{AGGREGATE_TYPE, EVENT_TYPE};
use crate::outcome::Outcome;
use crate::store::{ClaimedMessage, Stats, StoreError};

/// An event about a message: who it is of, and if it tells of an event or belongs to something larger, of what. These
/// headers are names and ids; no other header is ever logged.
macro_rules! event {
    ($level:ident, $metrics:expr, $message:expr, $($rest:tt)*) => {if tracing::enabled!(tracing::Level::$level) {
        let message: &ClaimedMessage = $message;
        let header = |name: &str| message.headers.get(name).map(String::as_str);
        let aggregate_type = header(AGGREGATE_TYPE);
        tracing::event!(
            tracing::Level::$level,
            dispatcher = %$metrics.name, event_id = %message.id, namespace = message.namespace, topic = message.topic,
            event_type = header(EVENT_TYPE).or(aggregate_type.map(|_| &*message.topic)), aggregate_type,
            aggregate_id = aggregate_type.and(message.key.as_deref()), correlation_id = header("correlation-id"),
            channel_message_id = header("channel-message-id"),
            tenant = message.tenant_id.map(tracing::field::display), attempt = message.attempts,
            $($rest)*
        );
    }};
}

/// Metric handles of one dispatcher.
pub(super) struct Metrics {
    name: String,
    claimed: Counter,
    fates: Fates,
    released: Counter,
    put_off: Counter,
    lease_lost: Counter,
    publish_seconds: Histogram,
    backlog: Gauge,
    due: Gauge,
    processing: Gauge,
    dead_rows: Gauge,
    oldest_due: Gauge,
    breaker_open: Gauge,
}

/// What becomes of messages: of all, or of those of one tenant.
struct Fate {
    outcomes: [(&'static str, Counter); 7],
    retried: Counter,
    dead: Counter,
    delivery_seconds: Histogram,
}

impl Fate {
    fn new(name: &str, tenant: Option<String>) -> Self {
        let label = || -> Vec<Label> {
            let tenant = tenant.iter().map(|tenant| Label::new("tenant", tenant.clone()));
            [Label::new("dispatcher", name.to_owned())].into_iter().chain(tenant).collect()
        };
        let outcome = |outcome: &'static str| {
            let labels = label().into_iter().chain([Label::new("outcome", outcome)]).collect::<Vec<_>>();
            (outcome, counter!("postrider_published_total", labels))
        };
        Self {
            outcomes: ["accepted", "duplicate", "retry", "reject", "unsendable", "busy", "unknown"].map(outcome),
            retried: counter!("postrider_retried_total", label()),
            dead: counter!("postrider_buried_total", label()),
            delivery_seconds: histogram!("postrider_delivery_seconds", label()),
        }
    }
}

/// The label of messages without a tenant.
const NO_TENANT: &str = "none";
/// The label of tenants beyond the most that have one of their own, and of messages whose tenant is not known.
const OTHER_TENANTS: &str = "other";

/// What becomes of messages, by tenant if that is asked for.
enum Fates {
    OfAll(Arc<Fate>),
    ByTenant { name: String, most: usize, known: Mutex<HashMap<Uuid, Arc<Fate>>>, none: Arc<Fate>, other: Arc<Fate> },
}

impl Fates {
    fn new(name: &str, tenants: Option<usize>) -> Self {
        let fate = |tenant: &str| Arc::new(Fate::new(name, Some(tenant.to_owned())));
        match tenants {
            None => Self::OfAll(Arc::new(Fate::new(name, None))),
            Some(most) => Self::ByTenant {
                name: name.to_owned(),
                most,
                known: Mutex::default(),
                none: fate(NO_TENANT),
                other: fate(OTHER_TENANTS),
            },
        }
    }

    fn of(&self, message: &ClaimedMessage) -> Arc<Fate> {
        let Self::ByTenant { name, most, known, none, other } = self else { return self.unknown() };
        let Some(tenant) = message.tenant_id else { return none.clone() };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&tenant) {
            Some(fate) => fate.clone(),
            None if known.len() >= *most => other.clone(),
            None => {
                let fate = Arc::new(Fate::new(name, Some(tenant.to_string())));
                known.insert(tenant, fate.clone());
                fate
            }
        }
    }

    /// Of a message whose tenant is not known.
    fn unknown(&self) -> Arc<Fate> {
        match self {
            Self::OfAll(fate) | Self::ByTenant { other: fate, .. } => fate.clone(),
        }
    }
}

impl Metrics {
    /// Metrics by tenant for so many `tenants`, or for none.
    pub fn new(name: &str, tenants: Option<usize>) -> Self {
        describe();
        let label = || [("dispatcher", name.to_owned())];
        Self {
            name: name.to_owned(),
            claimed: counter!("postrider_claimed_total", &label()),
            fates: Fates::new(name, tenants),
            released: counter!("postrider_released_total", &label()),
            put_off: counter!("postrider_tenant_limited_total", &label()),
            lease_lost: counter!("postrider_lease_lost_total", &label()),
            publish_seconds: histogram!("postrider_publish_seconds", &label()),
            backlog: gauge!("postrider_backlog", &label()),
            due: gauge!("postrider_due", &label()),
            processing: gauge!("postrider_processing", &label()),
            dead_rows: gauge!("postrider_dead", &label()),
            oldest_due: gauge!("postrider_oldest_due_seconds", &label()),
            breaker_open: gauge!("postrider_breaker_open", &label()),
        }
    }

    pub fn claimed(&self, rows: usize) {
        if rows > 0 {
            self.claimed.increment(rows as u64);
            tracing::debug!(dispatcher = %self.name, rows, "claimed");
        }
    }

    pub fn published(&self, message: &ClaimedMessage, outcome: &Outcome, took: Duration) {
        self.publish_seconds.record(took);
        if let Some((_, counter)) = self.fates.of(message).outcomes.iter().find(|(kind, _)| *kind == outcome.kind()) {
            counter.increment(1);
        }
    }

    pub fn delivered(&self, message: &ClaimedMessage, age: Duration) {
        self.fates.of(message).delivery_seconds.record(age);
        event!(DEBUG, self, message, "message is delivered");
    }

    pub fn retried(&self, message: &ClaimedMessage, kind: &'static str, delay: Duration) {
        self.fates.of(message).retried.increment(1);
        event!(INFO, self, message, outcome = kind, delay_ms = delay.as_millis() as u64, "message will be tried again");
    }

    pub fn buried(&self, message: &ClaimedMessage, kind: &'static str) {
        self.fates.of(message).dead.increment(1);
        event!(
            ERROR,
            self,
            message,
            outcome = kind,
            "message is dead; see its last_error, mend the cause and replay it"
        );
    }

    pub fn swept(&self, id: uuid::Uuid) {
        self.fates.unknown().dead.increment(1);
        tracing::error!(
            dispatcher = %self.name, event_id = %id,
            "message is dead: its attempts are spent and whether it arrived is unknown; check the destination before you replay it"
        );
    }

    pub fn released(&self, rows: usize, why: &'static str) {
        if rows > 0 {
            self.released.increment(rows as u64);
            tracing::debug!(dispatcher = %self.name, rows, why, "claims given back");
        }
    }

    pub fn put_off(&self, rows: usize) {
        self.put_off.increment(rows as u64);
        self.released(rows, "their tenants are over their limits");
    }

    pub fn lease_lost(&self, message: &ClaimedMessage, verb: &'static str) {
        self.lease_lost.increment(1);
        event!(
            WARN,
            self,
            message,
            verb,
            "lease lost: somebody else has the message by now or it is settled; nothing was written"
        );
    }

    pub fn stats(&self, stats: &Stats) {
        self.backlog.set(stats.pending as f64);
        self.due.set(stats.due as f64);
        self.processing.set(stats.processing as f64);
        self.dead_rows.set(stats.dead as f64);
        self.oldest_due.set(stats.oldest_due.as_secs_f64());
    }

    /// Only where there is something to tell: a gauge that is always zero would say that all is well.
    pub fn oldest_xmin_age(&self, age: Duration) {
        gauge!("postrider_oldest_xmin_age", "dispatcher" => self.name.clone()).set(age.as_secs_f64());
    }

    pub fn breaker(&self, open: bool) {
        self.breaker_open.set(if open { 1.0 } else { 0.0 });
        match open {
            true => {
                tracing::warn!(dispatcher = %self.name, "the sink seems to be down; claiming stops until it answers")
            }
            false => tracing::info!(dispatcher = %self.name, "the sink answers again; claiming goes on"),
        }
    }

    pub fn store_failed(&self, verb: &'static str, error: &StoreError) {
        counter!("postrider_store_errors_total", "dispatcher" => self.name.clone(), "verb" => verb).increment(1);
        let cause = std::error::Error::source(error).map(tracing::field::display);
        tracing::warn!(dispatcher = %self.name, verb, kind = ?error.kind(), cause, "{error}");
    }
}

fn describe() {
    describe_counter!("postrider_claimed_total", "Messages claimed.");
    describe_counter!("postrider_published_total", "Publishes by outcome.");
    describe_counter!("postrider_retried_total", "Failed attempts that will be repeated.");
    describe_counter!("postrider_buried_total", "Messages that became dead.");
    describe_counter!("postrider_released_total", "Claims given back without an attempt.");
    describe_counter!("postrider_tenant_limited_total", "Claims put off because their tenant is over its limit.");
    describe_counter!("postrider_lease_lost_total", "Settles refused because the lease was lost.");
    describe_counter!("postrider_store_errors_total", "Failed statements by verb.");
    describe_histogram!("postrider_publish_seconds", metrics::Unit::Seconds, "Time a publish took.");
    describe_histogram!(
        "postrider_delivery_seconds",
        metrics::Unit::Seconds,
        "From the producer's transaction to the ack."
    );
    describe_gauge!("postrider_backlog", "Messages that wait, due or not.");
    describe_gauge!("postrider_due", "Messages that wait although their time has come.");
    describe_gauge!("postrider_processing", "Messages under a lease.");
    describe_gauge!("postrider_dead", "Dead messages.");
    describe_gauge!(
        "postrider_oldest_due_seconds",
        metrics::Unit::Seconds,
        "For how long the oldest due message has been due."
    );
    describe_gauge!(
        "postrider_oldest_xmin_age",
        metrics::Unit::Seconds,
        "For how long the oldest open transaction has kept the database from cleaning up after changed rows."
    );
    describe_gauge!("postrider_breaker_open", "1 while claiming stops because the sink is down.");
}
