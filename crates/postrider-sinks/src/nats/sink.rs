//! The client that all routes share, and the sink of one route.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;

use async_nats::jetstream::context::{GetStreamErrorKind, PublishAckFuture};
use async_nats::jetstream::message::PublishMessage;
use async_trait::async_trait;
use postrider_core::{ClaimedMessage, Destination, Outcome, Sink};
use tokio::time::{Instant, timeout_at};

use super::config::NatsConfig;
use super::link::{Link, Links, Refusals};
use super::outcome::{of_answer, of_unsent};
use super::{header, subject};
use crate::format::{Form, Format};
use crate::kind::{Binding, SinkClient};
use crate::problem::ConfigProblem;

/// The most messages in one call; all of them are on their way at once.
const LARGEST_BATCH: usize = 1_000;

/// The most calls that are of use at the same time.
const CONCURRENCY: usize = 4;

/// What all routes to a sink share: one connection, which is made at the first need. Clones are the same client.
#[derive(Clone)]
pub struct NatsClient {
    shared: Arc<Shared>,
}

struct Shared {
    config: NatsConfig,
    form: Form,
    links: Links,
}

impl fmt::Debug for NatsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsClient").field("links", &self.shared.links).finish_non_exhaustive()
    }
}

impl NatsClient {
    /// A client by the name of `nats`.
    pub fn new(config: &NatsConfig) -> Result<Self, ConfigProblem> {
        Self::named("nats", config)
    }

    /// A client; the name is the sink's in logs.
    pub fn named(name: impl Into<String>, config: &NatsConfig) -> Result<Self, ConfigProblem> {
        config.check()?;
        let form = Form::new(config.format, &config.source, header::PREFIX)?;
        let links = Links::new(name.into(), config)?;
        Ok(Self { shared: Arc::new(Shared { config: config.clone(), form, links }) })
    }

    /// The sink of a route: its destination is a subject, fixed or with fields.
    pub fn sink(&self, destination: Destination) -> Result<NatsSink, ConfigProblem> {
        subject::check_destination(&destination).map_err(|what| ConfigProblem::new("destination", what))?;
        Ok(NatsSink { shared: self.shared.clone(), form: self.shared.form.clone(), destination })
    }
}

impl SinkClient for NatsClient {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        let sink = self.sink(binding.needed("orders.{topic}")?.clone())?;
        Ok(match binding.format {
            Some(format) => Arc::new(sink.with_format(format)),
            None => Arc::new(sink),
        })
    }
}

/// The sink of one route.
pub struct NatsSink {
    shared: Arc<Shared>,
    form: Form,
    destination: Destination,
}

impl fmt::Debug for NatsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSink").field("destination", &self.destination.to_string()).finish_non_exhaustive()
    }
}

/// A message as it is given to the library.
struct Written {
    subject: String,
    message: PublishMessage,
}

/// A message that waits for its acknowledgement.
struct Waiting {
    subject: String,
    sent: Instant,
    answer: <PublishAckFuture as IntoFuture>::IntoFuture,
}

impl NatsSink {
    /// A sink of its own, with a client of its own. Routes that share a connection share a [`NatsClient`].
    pub fn new(config: &NatsConfig, destination: Destination) -> Result<Self, ConfigProblem> {
        NatsClient::new(config)?.sink(destination)
    }

    /// Writes messages in another format than the client's settings say.
    pub fn with_format(mut self, format: Format) -> Self {
        self.form = self.form.with_format(format);
        self
    }

    fn write(&self, message: &ClaimedMessage) -> Result<Written, String> {
        let subject = subject::of(&self.destination, message)?.into_owned();
        let content = self.form.content(message)?;
        let headers = header::of(&content, &message.id.to_string(), self.shared.config.stream.as_deref())?;
        let message = PublishMessage::build().headers(headers).payload(content.body.into_owned().into());
        Ok(Written { subject, message })
    }

    async fn send(&self, link: &Link, written: Written, deadline: Instant) -> Result<Waiting, Outcome> {
        let Written { subject, message } = written;
        let sent = Instant::now();
        match timeout_at(deadline, link.context.send_publish(subject.clone(), message)).await {
            Ok(Ok(answer)) => Ok(Waiting { subject, sent, answer: answer.into_future() }),
            Ok(Err(error)) => Err(of_unsent(&error)),
            Err(_) => Err(Outcome::retry("nothing was sent: the connection has no room")),
        }
    }

    /// Waits for the acknowledgement, or for the server's word that there will be none.
    async fn answer(&self, mut waiting: Waiting, refusals: &mut Refusals) -> Outcome {
        loop {
            if refusals.tell_of(&waiting.subject, waiting.sent) {
                return Outcome::retry("the server does not let us publish on this subject; check the permissions");
            }
            if refusals.are_of_the_inbox() {
                return Outcome::Unknown(NO_INBOX.into());
            }
            tokio::select! {
                biased;
                answer = &mut waiting.answer => {
                    return of_answer(answer, self.shared.config.stream.as_deref());
                }
                () = refusals.next() => {}
            }
        }
    }

    /// Sends all messages before it waits for the first acknowledgement.
    async fn publish_on(&self, link: &Link, batch: Vec<Result<Written, Outcome>>, deadline: Instant) -> Vec<Outcome> {
        let mut refusals = link.refusals();
        let mut sent = Vec::with_capacity(batch.len());
        for written in batch {
            sent.push(match written {
                Ok(written) => self.send(link, written, deadline).await,
                Err(outcome) => Err(outcome),
            });
        }
        let (mut outcomes, mut is_silent) = (Vec::with_capacity(sent.len()), false);
        for waiting in sent {
            outcomes.push(match waiting {
                Ok(waiting) => match timeout_at(deadline, self.answer(waiting, &mut refusals)).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        is_silent = true;
                        Outcome::Unknown("the stream did not answer in time".into())
                    }
                },
                Err(outcome) => outcome,
            });
        }
        if is_silent {
            self.shared.links.retire(link);
        }
        outcomes
    }

    async fn ask(&self) -> Result<(), String> {
        let config = &self.shared.config;
        let deadline = Instant::now() + config.connect_timeout;
        let link = self.shared.links.link(deadline).await?;
        let asked = async {
            match &config.stream {
                Some(stream) => link.context.get_stream(stream).await.map(drop).map_err(|error| match error.kind() {
                    GetStreamErrorKind::JetStream(error) => {
                        format!("the stream {stream} cannot be used (error {}); create it", error.error_code().0)
                    }
                    _ => NO_JETSTREAM.to_owned(),
                }),
                None => link.context.query_account().await.map(drop).map_err(|_| NO_JETSTREAM.to_owned()),
            }
        };
        match timeout_at(deadline, asked).await {
            Ok(answered) => answered,
            Err(_) if link.refusals().are_of_the_inbox() => Err(NO_INBOX.into()),
            Err(_) => {
                self.shared.links.retire(&link);
                Err("NATS did not answer within connect_timeout".into())
            }
        }
    }
}

const NO_INBOX: &str =
    "no acknowledgement can come: the server does not let us subscribe to _INBOX.>; check the permissions";

const NO_JETSTREAM: &str = "JetStream did not answer; is it enabled for this account, and may we ask $JS.API?";

#[async_trait]
impl Sink for NatsSink {
    fn max_batch(&self) -> usize {
        LARGEST_BATCH
    }

    fn concurrency(&self) -> Option<usize> {
        Some(CONCURRENCY)
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let deadline = Instant::now() + self.shared.config.timeout;
        let written: Vec<_> = batch.iter().map(|message| self.write(message).map_err(Outcome::Unsendable)).collect();
        if written.iter().all(Result::is_err) {
            return written.into_iter().filter_map(Result::err).collect();
        }
        match self.shared.links.link(deadline).await {
            Ok(link) => self.publish_on(&link, written, deadline).await,
            Err(why) => {
                let down = Outcome::retry(format!("nothing was sent: {why}"));
                written.into_iter().map(|written| written.err().unwrap_or_else(|| down.clone())).collect()
            }
        }
    }

    /// Whether the stream is there, or else whether JetStream answers.
    async fn ready(&self) -> Result<(), String> {
        self.ask().await
    }
}
