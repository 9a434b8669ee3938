//! The producer, its reports, and its successor after a fatal error or too many topics.
//!
//! librdkafka forgets no topic that it was ever given a message for, and asks the brokers every second for all of those that
//! are not there. Topics may come from data, so a producer that has seen too many is replaced.
//!
//! librdkafka's threads end with the producer; what is outstanding then is purged. That takes up to about a second and is
//! done on a thread of its own, so that no task of the runtime waits for it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{Producer as _, ProducerContext, PurgeConfig, ThreadedProducer};
use rdkafka::statistics::Statistics;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{debug, info, warn};

use super::outcome::Failure;

/// What a message carries through librdkafka: where its report goes.
pub(super) struct Ticket {
    pub(super) at: usize,
    pub(super) reports: UnboundedSender<(usize, Result<(), Failure>)>,
}

/// What librdkafka's threads tell.
pub(super) struct Context {
    name: String,
    trouble: Mutex<Option<Code>>,
    /// Rung when a message has left the queue.
    pub(super) room: Notify,
}

impl Context {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), trouble: Mutex::new(None), room: Notify::new() }
    }

    /// The last problem of the connection, if nothing was delivered since.
    pub(super) fn trouble(&self) -> Option<Code> {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delivered(&self) {
        if self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            info!(sink = self.name, "Kafka takes messages again");
        }
    }
}

impl ClientContext for Context {
    /// librdkafka repeats itself; what an operator must know comes by `error` once. Answers of brokers to a login are left
    /// out, because nobody knows what a broker puts into them.
    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        match text.to_ascii_uppercase().contains("SASL") {
            true => debug!(sink = self.name, facility, "librdkafka: about SASL"),
            false => debug!(sink = self.name, facility, "librdkafka: {text}"),
        }
    }

    fn stats(&self, _: Statistics) {}

    /// Comes more than once for one problem.
    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        let news = {
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            // Of one outage come many errors; a cause is worth more than that a connection broke.
            let cause = matches!(code, Code::SSL | Code::Authentication | Code::SaslAuthenticationFailed | Code::Fatal);
            let news = match *trouble {
                None => true,
                Some(Code::BrokerTransportFailure | Code::AllBrokersDown | Code::Resolve) => cause,
                Some(_) => false,
            };
            if news {
                *trouble = Some(code);
            }
            news
        };
        match code {
            _ if !news => {}
            Code::Authentication | Code::SaslAuthenticationFailed => {
                warn!(sink = self.name, %code, "Kafka does not know the user");
            }
            _ => warn!(sink = self.name, %code, "trouble with Kafka: {reason}"),
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let report = match result {
            Ok(_) => Ok(()),
            Err((error, message)) => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
                Err(Failure { code, placed: message.partition() >= 0, trouble: self.trouble() })
            }
        };
        if report.is_ok() {
            self.delivered();
        }
        // Whoever waited may have gone.
        let _ = ticket.reports.send((ticket.at, report));
        self.room.notify_waiters();
    }
}

/// The most topics from data that a producer is used for.
const MOST_TOPICS: usize = 10_000;

/// A producer of librdkafka.
pub(super) struct Producer {
    inner: Option<ThreadedProducer<Context>>,
    /// Those from data that it was given messages for.
    topics: Mutex<HashSet<String>>,
}

impl Producer {
    pub(super) fn new(name: &str, properties: &ClientConfig) -> KafkaResult<Self> {
        Ok(Self { inner: Some(properties.create_with_context(Context::new(name))?), topics: Mutex::default() })
    }

    /// There is one until the drop.
    pub(super) fn get(&self) -> Option<&ThreadedProducer<Context>> {
        self.inner.as_ref()
    }

    pub(super) fn trouble(&self) -> Option<Code> {
        self.get().and_then(|inner| inner.client().context().trouble())
    }

    /// Notes that it was given a message for a topic from data.
    pub(super) fn note(&self, topic: &str) {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if !topics.contains(topic) {
            topics.insert(topic.to_owned());
        }
    }

    fn has_seen_too_many_topics(&self) -> bool {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).len() >= MOST_TOPICS
    }

    /// The fatal error that ended it. Errors of messages alone do not tell: most of idempotence are mended by librdkafka.
    fn fatal(&self) -> Option<Code> {
        self.get().and_then(|inner| inner.client().fatal_error()).map(|(code, _)| code)
    }

    /// Ends what is outstanding; the reports come at once.
    fn purge(&self) {
        if let Some(inner) = self.get() {
            inner.purge(PurgeConfig::default().queue().inflight());
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let inner = self.inner.take();
        let close = std::thread::Builder::new().name("kafka-close".into());
        // Without a thread for it, it is done right here.
        let _ = close.spawn(move || drop(inner));
    }
}

/// The place of a producer: made at its first use, and made anew when it is of no use any more.
pub(super) struct Place {
    name: String,
    properties: ClientConfig,
    current: Mutex<Option<Arc<Producer>>>,
}

impl Place {
    pub(super) fn new(name: &str, properties: ClientConfig) -> Self {
        Self { name: name.to_owned(), properties, current: Mutex::new(None) }
    }

    /// The producer that is to be used now.
    pub(super) fn producer(&self) -> Result<Arc<Producer>, String> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = current.take() {
            if let Some(code) = old.fatal() {
                warn!(sink = self.name, %code, "the producer met a fatal error and is replaced");
                metrics::counter!("postrider_kafka_producer_replacements_total", "sink" => self.name.clone())
                    .increment(1);
                old.purge();
            } else if old.has_seen_too_many_topics() {
                // It ends with the last call that uses it.
                debug!(sink = self.name, "the producer has seen too many topics and is replaced");
            } else {
                *current = Some(old.clone());
                return Ok(old);
            }
        }
        // The settings were tried when the client was made; files may have changed since.
        let made = Producer::new(&self.name, &self.properties);
        let made = Arc::new(made.map_err(|_| "no producer can be made; check the files of tls")?);
        *current = Some(made.clone());
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s21_a_producer_that_has_seen_too_many_topics_is_replaced() {
        let place = Place::new("kafka", ClientConfig::new());
        let first = place.producer().expect("it connects to nothing");
        for number in 1..MOST_TOPICS {
            first.note(&format!("topic-{number}"));
            first.note("topic-1");
        }
        assert!(Arc::ptr_eq(&first, &place.producer().expect("one")), "not yet");
        first.note("one more");
        let second = place.producer().expect("another");
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &place.producer().expect("the same")));
    }
}
