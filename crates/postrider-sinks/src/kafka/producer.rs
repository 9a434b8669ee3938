//! The producer, its reports, and its successor after a fatal error.
//!
//! librdkafka's threads end with the producer; what is outstanding then is purged. That takes up to about a second and is
//! done on a thread of its own, so that no task of the runtime waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
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
    fatal: AtomicBool,
    /// Rung when a message has left the queue.
    pub(super) room: Notify,
}

impl Context {
    fn new(name: &str) -> Self {
        let room = Notify::new();
        Self { name: name.to_owned(), trouble: Mutex::new(None), fatal: AtomicBool::new(false), room }
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
        if code == Code::Fatal {
            self.fatal.store(true, Ordering::Relaxed);
        }
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
                Err(Failure { code, placed: message.partition() >= 0 })
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

/// A producer of librdkafka.
pub(super) struct Producer {
    inner: Option<ThreadedProducer<Context>>,
}

impl Producer {
    pub(super) fn new(name: &str, properties: &ClientConfig) -> KafkaResult<Self> {
        Ok(Self { inner: Some(properties.create_with_context(Context::new(name))?) })
    }

    /// There is one until the drop.
    pub(super) fn get(&self) -> Option<&ThreadedProducer<Context>> {
        self.inner.as_ref()
    }

    pub(super) fn trouble(&self) -> Option<Code> {
        self.get().and_then(|inner| inner.client().context().trouble())
    }

    /// Marks it as broken, so that it is replaced at the next use.
    pub(super) fn give_up(&self) {
        if let Some(inner) = self.get() {
            inner.client().context().fatal.store(true, Ordering::Relaxed);
        }
    }

    fn is_broken(&self) -> bool {
        self.get().is_some_and(|inner| inner.client().context().fatal.load(Ordering::Relaxed))
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

/// The place of a producer: made at its first use, and made anew when it is broken.
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
        if let Some(producer) = current.as_ref().filter(|producer| !producer.is_broken()) {
            return Ok(producer.clone());
        }
        if let Some(broken) = current.take() {
            let fatal = broken.get().and_then(|inner| inner.client().fatal_error());
            let code = fatal.map_or(Code::Fatal, |(code, _)| code);
            warn!(sink = self.name, %code, "the producer met a fatal error and is replaced");
            metrics::counter!("postrider_kafka_producer_replacements_total", "sink" => self.name.clone()).increment(1);
            broken.purge();
        }
        // The settings were tried when the client was made; files may have changed since.
        let made = Producer::new(&self.name, &self.properties);
        let made = Arc::new(made.map_err(|_| "no producer can be made; check the files of tls")?);
        *current = Some(made.clone());
        Ok(made)
    }
}
