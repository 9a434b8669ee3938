//! The client that all routes share, and the sink of one route.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use futures::FutureExt;
use lapin::options::BasicPublishOptions;
use lapin::{Channel, Confirmation, ErrorKind};
use postrider_core::sabotage::{self, Defect};
use postrider_core::{ClaimedMessage, Destination, Outcome, Sink};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;

use super::config::AmqpConfig;
use super::link::{Leased, Links};
use super::outcome::{Answer, Unsent};
use super::wire::{CLOUDEVENTS, Written, write};
use crate::format::{Form, Format};
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;

/// What all routes to a sink share: the connection and its channels. Clones are the same client.
#[derive(Clone)]
pub struct AmqpClient {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    config: AmqpConfig,
    form: Form,
    links: Links,
}

/// The sink of one route: its destination is the routing key.
pub struct AmqpSink {
    shared: Arc<Shared>,
    destination: Destination,
    form: Form,
}

impl fmt::Debug for AmqpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpClient").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for AmqpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AmqpSink");
        shown.field("name", &self.shared.name).field("destination", &self.destination).finish_non_exhaustive()
    }
}

impl AmqpClient {
    /// A client by the name of `amqp`. It connects to nothing yet.
    pub fn new(config: &AmqpConfig) -> Result<Self, ConfigProblem> {
        Self::named("amqp", config)
    }

    /// A client; the name is the sink's in logs and metrics.
    pub fn named(name: impl Into<String>, config: &AmqpConfig) -> Result<Self, ConfigProblem> {
        config.check()?;
        let name = name.into();
        let shared = Shared {
            form: Form::new(config.format, &config.source, CLOUDEVENTS)?,
            links: Links::new(&name, config)?,
            config: config.clone(),
            name,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The sink of a route: its destination is the routing key.
    pub fn sink(&self, destination: Destination) -> Result<AmqpSink, ConfigProblem> {
        self.shared.config.check_binding(&Binding::to(destination.clone()))?;
        Ok(AmqpSink { shared: self.shared.clone(), destination, form: self.shared.form.clone() })
    }
}

impl SinkClient for AmqpClient {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        let sink = self.sink(binding.needed("orders or events.{topic}")?.clone())?;
        Ok(Arc::new(match binding.format {
            Some(format) => sink.with_format(format),
            None => sink,
        }))
    }
}

impl AmqpSink {
    /// The same in another format.
    pub fn with_format(mut self, format: Format) -> Self {
        self.form = self.form.with_format(format);
        self
    }

    /// A channel, or why there is none. One that does not come in time is taken for the silence of a dead connection.
    async fn lease(&self, deadline: Instant) -> Result<Leased, Unsent> {
        match timeout_at(deadline, self.shared.links.lease()).await {
            Ok(leased) => leased,
            Err(_) => {
                let blocked = self.shared.links.give_up_silent();
                Err(blocked.unwrap_or_else(|| Unsent::Down("the broker did not answer in time".into())))
            }
        }
    }

    /// Sends messages and waits for what becomes of them; one answer for each, in their order.
    async fn send(&self, messages: &[&Written<'_>], deadline: Instant) -> Result<Answers, Unsent> {
        let mut leased = self.lease(deadline).await?;
        let (channel, exchange) = (leased.channel.clone(), &self.shared.config.exchange);
        // All are given to the channel in their order before the first answer is waited for.
        let mut sending: Vec<Sending<'_>> = Vec::with_capacity(messages.len());
        for message in messages {
            if message.properties_size > leased.link.frame_max() {
                sending.push(Sending::Done(Answer::Oversized));
                continue;
            }
            // The library logs what it cannot send any more, headers and payload included.
            let quiet = publish(&channel, exchange, message).with_subscriber(Dispatch::none());
            let mut publish: Publishing<'_> = Box::pin(quiet);
            sending.push(match futures::poll!(&mut publish) {
                Poll::Ready(Err(error)) if matches!(error.kind(), ErrorKind::InvalidChannelState(..)) => {
                    Sending::Done(Answer::NotSent(error))
                }
                Poll::Ready(done) => Sending::Done(Answer::from(done)),
                Poll::Pending => Sending::UnderWay(publish),
            });
        }
        for one in &mut sending {
            if let Sending::UnderWay(publish) = one
                && let Ok(done) = timeout_at(deadline, publish).await
            {
                *one = Sending::Done(Answer::from(done));
            }
        }
        take_last_answers(&mut leased, &mut sending);
        let answers: Vec<Answer> = sending.into_iter().map(Sending::answer).collect();
        let returned = answers.iter().filter_map(Answer::returned).collect();
        part(leased, &answers);
        Ok(Answers { answers, returned })
    }

    async fn publish_written(&self, messages: &[&Written<'_>], deadline: Instant) -> Vec<Outcome> {
        if messages.is_empty() {
            return Vec::new();
        }
        let answers = match self.send(messages, deadline).await {
            Ok(answers) => answers,
            Err(unsent) => return vec![unsent.outcome(); messages.len()],
        };
        let alone = messages.len() == 1;
        let mut outcomes = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            let outcome = answers.outcome(at, message, alone);
            outcomes.push(match !alone && answers.answers[at].is_refusal() {
                // One of them closed the channel, and which one shows when they are sent alone.
                true => self.send_alone(message, deadline).await.unwrap_or(outcome),
                false => outcome,
            });
        }
        outcomes
    }

    /// Sends a message with nothing else on its channel, which it closes if it is refused. Nothing if there is no time or
    /// no channel for it: then what became of it before stays.
    async fn send_alone(&self, message: &Written<'_>, deadline: Instant) -> Option<Outcome> {
        if Instant::now() >= deadline {
            return None;
        }
        let answers = self.send(&[message], deadline).await.ok()?;
        Some(answers.outcome(0, message, true))
    }
}

/// Takes what was answered at the last moment, if the time was up for some.
///
/// A returned message may be found with the confirm of another one of the same bundle. Who saw one as confirmed must
/// therefore have seen all of its bundle. So this looks again until nothing is new: then every bundle that was seen
/// at all was complete before the last look began.
fn take_last_answers(leased: &mut Leased, sending: &mut [Sending<'_>]) {
    let mut is_new = sending.iter().any(|one| matches!(one, Sending::UnderWay(_)));
    while is_new {
        leased.settle();
        is_new = false;
        for one in sending.iter_mut() {
            if let Sending::UnderWay(publish) = one
                && let Some(done) = publish.as_mut().now_or_never()
            {
                *one = Sending::Done(Answer::from(done));
                is_new = true;
            }
        }
    }
}

/// What becomes of the channel after a call.
fn part(leased: Leased, answers: &[Answer]) {
    if answers.iter().all(|answer| answer.is_confirmed() || matches!(answer, Answer::Oversized)) {
        return leased.give_back();
    }
    if answers.iter().all(|answer| matches!(answer, Answer::Silent | Answer::Oversized)) && !leased.link.is_blocked() {
        leased.link.doubt();
    }
}

struct Answers {
    answers: Vec<Answer>,
    /// The ids of those that no queue was there for.
    returned: HashSet<String>,
}

impl Answers {
    fn outcome(&self, at: usize, message: &Written<'_>, alone: bool) -> Outcome {
        let id = message.properties.message_id().as_ref();
        let returned = id.is_some_and(|id| self.returned.contains(id.as_str()));
        self.answers[at].outcome(returned, alone)
    }
}

type Publishing<'a> = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send + 'a>>;

enum Sending<'a> {
    UnderWay(Publishing<'a>),
    Done(Answer),
}

impl Sending<'_> {
    fn answer(self) -> Answer {
        match self {
            Self::Done(answer) => answer,
            Self::UnderWay(_) => Answer::Silent,
        }
    }
}

async fn publish(channel: &Channel, exchange: &str, message: &Written<'_>) -> lapin::Result<Confirmation> {
    let options =
        BasicPublishOptions { mandatory: !sabotage::has(Defect::MandatoryOff), ..BasicPublishOptions::default() };
    let (key, properties) = (message.routing_key.clone(), message.properties.clone());
    channel.basic_publish(exchange.into(), key, options, &message.body, properties).await?.await
}

#[async_trait]
impl Sink for AmqpSink {
    fn max_batch(&self) -> usize {
        self.shared.config.max_batch
    }

    fn concurrency(&self) -> Option<usize> {
        Some(self.shared.config.channels)
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let deadline = Instant::now() + self.shared.config.timeout;
        let write = |message| write(message, &self.destination, &self.form, &self.shared.config);
        let written: Vec<Result<Written<'_>, String>> = batch.iter().map(write).collect();
        let good: Vec<&Written<'_>> = written.iter().flatten().collect();
        let mut outcomes = self.publish_written(&good, deadline).await.into_iter();
        let mut outcome = |written: &Result<Written<'_>, String>| match written {
            Ok(_) => outcomes.next().unwrap_or_else(|| Outcome::Unknown("the sink lost sight of it".into())),
            Err(why) => Outcome::Unsendable(why.clone()),
        };
        written.iter().map(&mut outcome).collect()
    }

    async fn ready(&self) -> Result<(), String> {
        let asked = timeout(self.shared.config.connect_timeout, self.shared.links.open_new()).await;
        match asked {
            Ok(Ok(leased)) => {
                leased.give_back();
                Ok(())
            }
            Ok(Err(unsent)) => Err(unsent.why()),
            Err(_) => match self.shared.links.give_up_silent() {
                Some(blocked) => Err(blocked.why()),
                None => Err("the broker did not answer within connect_timeout".into()),
            },
        }
    }
}
