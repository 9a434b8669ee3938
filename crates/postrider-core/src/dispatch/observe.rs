//! What an operator sees: metrics through the `metrics` facade, and structured events. Event ids, namespaces,
//! topics, tenants and attempts are in events; payloads, headers and error texts of sinks never are (the latter
//! are in the row's `last_error`). Labels hold the dispatcher's name and fixed words only.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::outcome::Outcome;
use crate::store::{ClaimedMessage, Stats, StoreError};

/// Metric handles of one dispatcher.
pub(super) struct Metrics {
    name: String,
    claimed: Counter,
    outcomes: [(&'static str, Counter); 7],
    retried: Counter,
    dead: Counter,
    released: Counter,
    lease_lost: Counter,
    publish_seconds: Histogram,
    delivery_seconds: Histogram,
    backlog: Gauge,
    due: Gauge,
    processing: Gauge,
    dead_rows: Gauge,
    oldest_due: Gauge,
    breaker_open: Gauge,
}

impl Metrics {
    pub fn new(name: &str) -> Self {
        describe();
        let label = || [("dispatcher", name.to_owned())];
        let outcome = |outcome: &'static str| {
            (outcome, counter!("postrider_published_total", "dispatcher" => name.to_owned(), "outcome" => outcome))
        };
        Self {
            name: name.to_owned(),
            claimed: counter!("postrider_claimed_total", &label()),
            outcomes: ["accepted", "duplicate", "retry", "reject", "unsendable", "busy", "unknown"].map(outcome),
            retried: counter!("postrider_retried_total", &label()),
            dead: counter!("postrider_buried_total", &label()),
            released: counter!("postrider_released_total", &label()),
            lease_lost: counter!("postrider_lease_lost_total", &label()),
            publish_seconds: histogram!("postrider_publish_seconds", &label()),
            delivery_seconds: histogram!("postrider_delivery_seconds", &label()),
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

    pub fn published(&self, outcome: &Outcome, took: Duration) {
        self.publish_seconds.record(took);
        if let Some((_, counter)) = self.outcomes.iter().find(|(kind, _)| *kind == outcome.kind()) {
            counter.increment(1);
        }
    }

    pub fn delivered(&self, age: Duration) {
        self.delivery_seconds.record(age);
    }

    pub fn retried(&self, message: &ClaimedMessage, kind: &'static str, delay: Duration) {
        self.retried.increment(1);
        tracing::info!(
            dispatcher = %self.name, event_id = %message.id, namespace = message.namespace, topic = message.topic,
            tenant = message.tenant_id.map(tracing::field::display), attempt = message.attempts, outcome = kind,
            delay_ms = delay.as_millis() as u64, "message will be tried again"
        );
    }

    pub fn buried(&self, message: &ClaimedMessage, kind: &'static str) {
        self.dead.increment(1);
        tracing::error!(
            dispatcher = %self.name, event_id = %message.id, namespace = message.namespace, topic = message.topic,
            tenant = message.tenant_id.map(tracing::field::display), attempt = message.attempts, outcome = kind,
            "message is dead; see its last_error, mend the cause and replay it"
        );
    }

    pub fn swept(&self, id: uuid::Uuid) {
        self.dead.increment(1);
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

    pub fn lease_lost(&self, message: &ClaimedMessage, verb: &'static str) {
        self.lease_lost.increment(1);
        tracing::warn!(
            dispatcher = %self.name, event_id = %message.id, namespace = message.namespace, topic = message.topic,
            tenant = message.tenant_id.map(tracing::field::display), attempt = message.attempts, verb,
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
    describe_gauge!("postrider_breaker_open", "1 while claiming stops because the sink is down.");
}
