//! The client that all routes share, and the sink of one route.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::{ClaimedMessage, Destination, Outcome, Sink};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::config::KafkaConfig;
use super::outcome::{Failure, of};
use super::producer::{Place, Producer, Ticket};
use super::{property, topic};
use crate::format::Form;
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;

/// The most messages in one call. librdkafka makes requests of its own from them.
const MAX_BATCH: usize = 1_000;
/// How often a full queue is looked at if no report says that there is room.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// By the protocol binding of CloudEvents.
const CLOUDEVENTS: &str = "ce_";

/// What all routes to a sink share. Clones are the same client.
#[derive(Clone)]
pub struct KafkaClient {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    config: KafkaConfig,
    form: Form,
    /// For all messages.
    many: Place,
    /// For those that were refused together with others: each is a request of its own.
    alone: Place,
    /// Metadata is asked for on one thread at a time: it blocks.
    asking: Arc<Semaphore>,
}

impl fmt::Debug for KafkaClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaClient").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl KafkaClient {
    /// A client by the name of `kafka`.
    pub fn new(config: &KafkaConfig) -> Result<Self, ConfigProblem> {
        Self::named("kafka", config)
    }

    /// A client; the name is the sink's in logs and metrics. It connects to nothing before it is used.
    pub fn named(name: impl Into<String>, config: &KafkaConfig) -> Result<Self, ConfigProblem> {
        config.problems().into_iter().next().map_or(Ok(()), Err)?;
        let name = name.into();
        let many = property::of(config)?;
        // A producer without brokers connects to nothing, but finds all that librdkafka does not take.
        let mut trial = many.clone();
        trial.remove("bootstrap.servers");
        Producer::new(&name, &trial).map_err(|error| property::problem(config, &error))?;
        let mut alone = many.clone();
        alone.set("batch.num.messages", "1");
        let shared = Shared {
            form: Form::new(config.format, &config.source, CLOUDEVENTS)?,
            many: Place::new(&name, many),
            alone: Place::new(&name, alone),
            asking: Arc::new(Semaphore::new(1)),
            config: config.clone(),
            name,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The sink of a route: its destination is a topic, fixed or with fields.
    pub fn sink(&self, destination: Destination) -> Result<KafkaSink, ConfigProblem> {
        topic::check(&destination)?;
        Ok(KafkaSink { shared: self.shared.clone(), form: self.shared.form.clone(), destination })
    }
}

impl SinkClient for KafkaClient {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        let mut sink = self.sink(binding.needed("orders")?.clone())?;
        if let Some(format) = binding.format {
            sink.form = sink.form.with_format(format);
        }
        Ok(Arc::new(sink))
    }
}

/// The sink of one route.
pub struct KafkaSink {
    shared: Arc<Shared>,
    form: Form,
    destination: Destination,
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("KafkaSink");
        shown.field("name", &self.shared.name).field("destination", &self.destination.to_string());
        shown.finish_non_exhaustive()
    }
}

type Report = (usize, Result<(), Failure>);

/// One call of publish: what is known of each message so far, and until when.
struct Call<'a> {
    batch: &'a [ClaimedMessage],
    outcomes: Vec<Option<Outcome>>,
    /// Which messages were sent again, each in a request of its own, and the producer that lives until their reports.
    alone: Vec<Option<Arc<Producer>>>,
    reports: UnboundedSender<Report>,
    received: UnboundedReceiver<Report>,
    /// How many reports are still to come.
    outstanding: usize,
    /// Until when messages are given to librdkafka.
    give_until: Instant,
    /// Until when reports are waited for.
    end: Instant,
}

impl<'a> Call<'a> {
    fn new(batch: &'a [ClaimedMessage], config: &KafkaConfig) -> Self {
        let now = Instant::now();
        let (reports, received) = unbounded_channel();
        Self {
            batch,
            outcomes: vec![None; batch.len()],
            alone: vec![None; batch.len()],
            reports,
            received,
            outstanding: 0,
            give_until: now + config.patience(),
            end: now + config.timeout,
        }
    }
}

impl KafkaSink {
    /// Gives all messages to the producer that sends them together.
    async fn give_all(&self, call: &mut Call<'_>, producer: &Producer) {
        let batch = call.batch;
        // What could not be given for now, and why; the rest of its key waits for it.
        let mut held = HashMap::<&str, Outcome>::new();
        for (at, message) in batch.iter().enumerate() {
            // A batch of large messages must not keep a thread of the runtime from everything else.
            tokio::task::consume_budget().await;
            let key = message.key.as_deref();
            let given = match key.and_then(|key| held.get(key)) {
                Some(outcome) => Err(outcome.clone()),
                None => self.give(call, producer, at).await,
            };
            if let Err(outcome) = given {
                // What will never be sent holds up nothing.
                if !matches!(outcome, Outcome::Unsendable(_) | Outcome::Reject(_)) {
                    held.extend(key.map(|key| (key, outcome.clone())));
                }
                call.outcomes[at] = Some(outcome);
            }
        }
    }

    /// Waits for reports. What was refused together with others is given again at once, and does not wait for the rest.
    async fn collect(&self, call: &mut Call<'_>) {
        while call.outstanding > 0 {
            // Without a report until then, nobody knows.
            let Ok(Some((at, report))) = timeout_at(call.end, call.received.recv()).await else { return };
            call.outstanding -= 1;
            let outcome = match report {
                Ok(()) => Outcome::Accepted,
                Err(failure) if failure.may_be_anothers() && call.alone[at].is_none() => {
                    match self.give_alone(call, at).await {
                        Ok(()) => continue,
                        Err(outcome) => outcome,
                    }
                }
                Err(failure) => failure.outcome(),
            };
            call.outcomes[at] = Some(outcome);
        }
    }

    /// Gives a message to the producer that sends each in a request of its own.
    async fn give_alone(&self, call: &mut Call<'_>, at: usize) -> Result<(), Outcome> {
        if Instant::now() >= call.give_until {
            let why = "it was refused with others in one request, and there was no time to send it alone";
            return Err(Outcome::retry(why));
        }
        let producer = self.shared.alone.producer().map_err(Outcome::retry)?;
        call.alone[at] = Some(producer.clone());
        self.give(call, &producer, at).await
    }

    /// Gives one message to librdkafka, and waits for room if there is none.
    async fn give(&self, call: &mut Call<'_>, producer: &Producer, at: usize) -> Result<(), Outcome> {
        let message = &call.batch[at];
        let topic = topic::of(&self.destination, message).map_err(Outcome::Unsendable)?;
        let content = self.form.content(message).map_err(Outcome::Unsendable)?;
        let Some(inner) = producer.get() else { return Err(Outcome::retry("the producer is gone")) };
        if !self.destination.is_fixed() {
            producer.note(&topic);
        }
        let mut headers = OwnedHeaders::new_with_capacity(content.headers.len());
        for (name, value) in &content.headers {
            headers = headers.insert(Header { key: name, value: Some(value.as_bytes()) });
        }
        let mut record = BaseRecord::with_opaque_to(&topic, Box::new(Ticket { at, reports: call.reports.clone() }))
            .payload(&*content.body)
            .timestamp(message.created_at_micros.max(0) / 1_000)
            .headers(headers);
        // An empty key is no key: it must not put all such messages into one partition.
        if let Some(key) = message.key.as_deref().filter(|key| !key.is_empty()) {
            record = record.key(key.as_bytes());
        }
        // What is given later could be sent after the end of the call.
        while Instant::now() < call.give_until {
            let room = inner.client().context().room.notified();
            let (error, again) = match inner.send(record) {
                Ok(()) => {
                    call.outstanding += 1;
                    return Ok(());
                }
                Err(refused) => refused,
            };
            let code = code(&error);
            if code != Code::QueueFull {
                return Err(Self::not_given(producer, code));
            }
            record = again;
            let _ = timeout(LOOK_AGAIN, room).await;
        }
        Err(Self::not_given(producer, Code::QueueFull))
    }

    /// The outcome of a message that librdkafka did not even take.
    fn not_given(producer: &Producer, code: Code) -> Outcome {
        if code == Code::Fatal {
            return Outcome::retry("nothing was sent: the producer met a fatal error and is replaced");
        }
        match (Failure { code, placed: false, trouble: producer.trouble() }).outcome() {
            Outcome::Unknown(why) => Outcome::retry(format!("nothing was sent: {why}")),
            outcome => outcome,
        }
    }
}

impl Shared {
    /// Asks for the metadata of a topic, or of the cluster, on a thread of its own: librdkafka blocks.
    async fn ask(&self, permit: OwnedSemaphorePermit, topic: Option<String>, end: Instant) -> Result<(), String> {
        let producer = self.many.producer()?;
        let asked = tokio::task::spawn_blocking(move || {
            // Also when nobody waits any more, there is no second thread before this one has ended.
            let _permit = permit;
            let Some(inner) = producer.get() else { return Err("the producer is gone".into()) };
            let limit = end.saturating_duration_since(Instant::now());
            match inner.client().fetch_metadata(topic.as_deref(), limit) {
                Ok(metadata) => metadata.topics().iter().filter(|_| topic.is_some()).try_for_each(usable),
                Err(error) => {
                    let why = format!("Kafka does not answer within connect_timeout ({})", code(&error));
                    Err(why + &of(producer.trouble()))
                }
            }
        });
        asked.await.unwrap_or_else(|_| Err("asking Kafka panicked".into()))
    }
}

fn usable(topic: &rdkafka::metadata::MetadataTopic) -> Result<(), String> {
    if let Some(error) = topic.error() {
        let failure = Failure { code: Code::from(error), placed: true, trouble: None };
        return match failure.outcome() {
            Outcome::Retry { why, .. } | Outcome::Unknown(why) | Outcome::Reject(why) => Err(why),
            outcome => Err(outcome.kind().into()),
        };
    }
    match topic.partitions().iter().any(|partition| partition.leader() >= 0) {
        true => Ok(()),
        false => Err("no partition of the topic has a leader".into()),
    }
}

fn code(error: &KafkaError) -> Code {
    error.rdkafka_error_code().unwrap_or(Code::Unknown)
}

#[async_trait]
impl Sink for KafkaSink {
    fn max_batch(&self) -> usize {
        MAX_BATCH
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let mut call = Call::new(batch, &self.shared.config);
        let producer = match self.shared.many.producer() {
            Ok(producer) => producer,
            Err(why) => return vec![Outcome::retry(why); batch.len()],
        };
        self.give_all(&mut call, &producer).await;
        self.collect(&mut call).await;
        let silence = || Outcome::Unknown("librdkafka reported nothing within timeout".into());
        call.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(silence)).collect()
    }

    /// Whether the topic is there (or the cluster, if topics come from data), with a leader, and may be written to.
    async fn ready(&self) -> Result<(), String> {
        let end = Instant::now() + self.shared.config.connect_timeout;
        let permit = timeout_at(end, self.shared.asking.clone().acquire_owned()).await.ok().and_then(Result::ok);
        let permit = permit.ok_or("Kafka does not answer within connect_timeout")?;
        self.shared.ask(permit, self.destination.is_fixed().then(|| self.destination.to_string()), end).await
    }
}
