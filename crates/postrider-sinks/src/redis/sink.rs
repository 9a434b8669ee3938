//! The client that all routes share, and the sink of one route.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use postrider_core::{ClaimedMessage, Destination, Outcome, Sink};
use redis::{Cmd, Pipeline};
use tokio::time::{Instant, timeout_at};

use super::config::RedisConfig;
use super::link::{Link, Links};
use super::outcome::{needs_another, of_answer, of_failure};
use super::stream;
use crate::format::{Form, Format};
use crate::kind::{Binding, SinkClient};
use crate::problem::ConfigProblem;

/// What goes before the name of a CloudEvents attribute.
const PREFIX: &str = "ce_";

/// The field with the body.
const PAYLOAD: &str = "payload";

/// What goes before a producer's header that has the name of that field.
const CARRIED_PAYLOAD: &str = "postrider-header-payload";

/// The most messages in one call; all of them are on their way at once.
const LARGEST_BATCH: usize = 1_000;

/// The most messages whose answers are lost together when a connection breaks.
const LARGEST_PIPELINE: usize = 64;

/// The most calls that are of use at the same time.
const CONCURRENCY: usize = 4;

/// What all routes to a sink share: one connection, which is made at the first need. Clones are the same client.
#[derive(Clone)]
pub struct RedisClient {
    shared: Arc<Shared>,
}

struct Shared {
    config: RedisConfig,
    form: Form,
    links: Links,
}

impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClient").field("links", &self.shared.links).finish_non_exhaustive()
    }
}

impl RedisClient {
    /// A client by the name of `redis`.
    pub fn new(config: &RedisConfig) -> Result<Self, ConfigProblem> {
        Self::named("redis", config)
    }

    /// A client; the name is the sink's in logs.
    pub fn named(name: impl Into<String>, config: &RedisConfig) -> Result<Self, ConfigProblem> {
        config.check()?;
        let form = Form::new(config.format, &config.source, PREFIX)?;
        let links = Links::new(name.into(), config)?;
        Ok(Self { shared: Arc::new(Shared { config: config.clone(), form, links }) })
    }

    /// The sink of a route: its destination is the key of a stream, fixed or with fields.
    pub fn sink(&self, destination: Destination) -> Result<RedisSink, ConfigProblem> {
        stream::check_destination(&destination).map_err(|what| ConfigProblem::new("destination", what))?;
        Ok(RedisSink { shared: self.shared.clone(), form: self.shared.form.clone(), destination })
    }
}

impl SinkClient for RedisClient {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        let sink = self.sink(binding.needed("orders:{topic}")?.clone())?;
        Ok(match binding.format {
            Some(format) => Arc::new(sink.with_format(format)),
            None => Arc::new(sink),
        })
    }
}

/// The sink of one route.
pub struct RedisSink {
    shared: Arc<Shared>,
    form: Form,
    destination: Destination,
}

impl fmt::Debug for RedisSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSink").field("destination", &self.destination.to_string()).finish_non_exhaustive()
    }
}

/// Some messages of a batch that go out together: their places in it, and their commands.
struct Together {
    stream: String,
    places: Vec<usize>,
    commands: Pipeline,
}

impl RedisSink {
    /// A sink of its own, with a client of its own. Routes that share a connection share a [`RedisClient`].
    pub fn new(config: &RedisConfig, destination: Destination) -> Result<Self, ConfigProblem> {
        RedisClient::new(config)?.sink(destination)
    }

    /// Writes messages in another format than the client's settings say.
    pub fn with_format(mut self, format: Format) -> Self {
        self.form = self.form.with_format(format);
        self
    }

    /// The stream of a message and the command that appends it.
    fn write(&self, message: &ClaimedMessage) -> Result<(String, Cmd), String> {
        let config = &self.shared.config;
        let stream = stream::of(&self.destination, message)?.into_owned();
        let content = self.form.content(message)?;
        let headers = content.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if headers + content.body.len() > config.max_message_size {
            return Err("it is larger than max_message_size".into());
        }
        let mut command = redis::cmd("XADD");
        command.arg(&stream);
        if !config.create_streams {
            command.arg("NOMKSTREAM");
        }
        if let Some(maxlen) = config.maxlen {
            command.arg("MAXLEN").arg(if config.exact_maxlen { "=" } else { "~" }).arg(maxlen);
        }
        command.arg("*").arg(PAYLOAD).arg(&*content.body);
        for (name, value) in &content.headers {
            let name = if name == PAYLOAD { CARRIED_PAYLOAD } else { name };
            command.arg(name).arg(value.as_bytes());
        }
        Ok((stream, command))
    }

    /// Puts commands together, in their order. A cluster takes those of one stream at a time, a server any.
    fn together(&self, commands: Vec<(usize, String, Cmd)>) -> Vec<Together> {
        let mut all: Vec<Together> = Vec::new();
        for (place, stream, command) in commands {
            let open = match self.shared.config.cluster {
                true => all.iter_mut().find(|some| some.stream == stream),
                false => all.last_mut().filter(|some| some.places.len() < LARGEST_PIPELINE),
            };
            match open {
                Some(some) => {
                    some.places.push(place);
                    some.commands.add_command(command);
                }
                None => {
                    let mut commands = redis::pipe();
                    commands.add_command(command);
                    all.push(Together { stream, places: vec![place], commands });
                }
            }
        }
        all
    }

    /// Sends everything before the first answer is awaited, and puts the outcomes in their places.
    async fn publish_on(&self, link: &Link, all: Vec<Together>, outcomes: &mut [Option<Outcome>], deadline: Instant) {
        let answers = join_all(all.iter().map(|some| timeout_at(deadline, link.send(&some.commands)))).await;
        let mut is_spent = false;
        for (some, answers) in all.iter().zip(answers) {
            let found: Vec<Outcome> = match answers {
                Ok(Ok(answers)) if answers.len() == some.places.len() => {
                    is_spent |= answers.iter().any(needs_another);
                    answers.iter().map(of_answer).collect()
                }
                Ok(Ok(_)) => vec![Outcome::Unknown("Redis gave too few answers".into()); some.places.len()],
                Ok(Err(error)) => {
                    is_spent = true;
                    vec![of_failure(&error); some.places.len()]
                }
                Err(_) => {
                    is_spent = true;
                    vec![Outcome::Unknown("Redis did not answer in time".into()); some.places.len()]
                }
            };
            for (place, outcome) in some.places.iter().zip(found) {
                outcomes[*place] = Some(outcome);
            }
        }
        if outcomes.contains(&Some(Outcome::Accepted)) {
            is_spent |= !self.replicate(link, outcomes, deadline).await;
        }
        if is_spent {
            self.shared.links.retire(link);
        }
    }

    /// Waits for replicas, if the operator wants some; without enough of them nothing is delivered. Answers whether the
    /// connection can be used again.
    async fn replicate(&self, link: &Link, outcomes: &mut [Option<Outcome>], deadline: Instant) -> bool {
        let wanted = self.shared.config.wait_replicas;
        if wanted == 0 {
            return true;
        }
        // Half of what is left, so that the answer comes in time.
        let millis = (deadline.saturating_duration_since(Instant::now()).as_millis() / 2).max(1);
        let answer = timeout_at(deadline, link.replicas(wanted, millis)).await;
        if matches!(answer, Ok(Ok(count)) if count >= wanted) {
            return true;
        }
        for outcome in outcomes.iter_mut().filter(|outcome| **outcome == Some(Outcome::Accepted)) {
            let why = "it is stored, but fewer replicas than wait_replicas have it";
            *outcome = Some(Outcome::Unknown(why.into()));
        }
        matches!(answer, Ok(Ok(_)))
    }
}

#[async_trait]
impl Sink for RedisSink {
    fn max_batch(&self) -> usize {
        LARGEST_BATCH
    }

    fn concurrency(&self) -> Option<usize> {
        Some(CONCURRENCY)
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let deadline = Instant::now() + self.shared.config.timeout;
        let (mut outcomes, mut commands) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for (place, message) in batch.iter().enumerate() {
            match self.write(message) {
                Ok((stream, command)) => {
                    commands.push((place, stream, command));
                    outcomes.push(None);
                }
                Err(why) => outcomes.push(Some(Outcome::Unsendable(why))),
            }
        }
        let mut otherwise = Outcome::Unknown("Redis gave no answer".into());
        if !commands.is_empty() {
            match self.shared.links.link(deadline).await {
                Ok(link) => self.publish_on(&link, self.together(commands), &mut outcomes, deadline).await,
                Err(why) => otherwise = Outcome::retry(format!("nothing was sent: {why}")),
            }
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| otherwise.clone())).collect()
    }

    /// Whether the server answers, or the cluster is complete.
    async fn ready(&self) -> Result<(), String> {
        let deadline = Instant::now() + self.shared.config.connect_timeout;
        let link = self.shared.links.link(deadline).await?;
        let asked = timeout_at(deadline, link.ask()).await;
        let asked = asked.unwrap_or_else(|_| Err("Redis did not answer within connect_timeout".into()));
        if asked.is_err() {
            self.shared.links.retire(&link);
        }
        asked
    }
}
