//! The client that all routes share, and the sink of one route.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_sns::Client;
use aws_sdk_sns::types::{MessageAttributeValue, PublishBatchRequestEntry};
use postrider_core::{ClaimedMessage, Destination, Outcome, Sink};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::config::SnsConfig;
use super::outcome::of_answer;
use crate::aws::{CLOUDEVENTS, Entry, Failure, Service, check_name, is_forbidden, of_sdk, publish, quietly};
use crate::format::{Form, Format};
use crate::kind::{Binding, SinkClient};
use crate::problem::ConfigProblem;

/// The most characters of a topic's name.
const LONGEST_NAME: usize = 256;

/// What all routes to a sink share: connections. Clones are the same client.
#[derive(Clone)]
pub struct SnsClient {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    config: SnsConfig,
    form: Form,
    /// Made when it is first needed, because looking for credentials may take a while.
    client: OnceCell<Client>,
}

/// The sink of one route: its destination is a topic.
pub struct SnsSink {
    shared: Arc<Shared>,
    destination: Destination,
    form: Form,
}

impl fmt::Debug for SnsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnsClient").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for SnsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SnsSink");
        shown.field("name", &self.shared.name).field("destination", &self.destination).finish_non_exhaustive()
    }
}

impl SnsClient {
    /// A client by the name of `sns`. It connects to nothing yet.
    pub fn new(config: &SnsConfig) -> Result<Self, ConfigProblem> {
        Self::named("sns", config)
    }

    /// A client; the name is the sink's in logs.
    pub fn named(name: impl Into<String>, config: &SnsConfig) -> Result<Self, ConfigProblem> {
        config.check()?;
        let shared = Shared {
            name: name.into(),
            form: Form::new(config.format, &config.source, CLOUDEVENTS)?,
            config: config.clone(),
            client: OnceCell::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The sink of a route: its destination is the ARN of a topic.
    pub fn sink(&self, destination: Destination) -> Result<SnsSink, ConfigProblem> {
        check_destination(&destination)?;
        Ok(SnsSink { shared: self.shared.clone(), destination, form: self.shared.form.clone() })
    }
}

impl SinkClient for SnsClient {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        let sink = self.sink(binding.needed("arn:aws:sns:eu-central-1:123456789012:orders")?.clone())?;
        Ok(Arc::new(match binding.format {
            Some(format) => sink.with_format(format),
            None => sink,
        }))
    }
}

/// Whether a destination can be the ARN of a topic; what comes from messages is checked with each of them.
pub(super) fn check_destination(destination: &Destination) -> Result<(), ConfigProblem> {
    let problem = |what: String| ConfigProblem::new("destination", what);
    let parts: Vec<&str> = destination.prefix().splitn(6, ':').collect();
    let ["arn", _, "sns", _, _, name] = parts.as_slice() else {
        let what = "it is no topic's ARN; write for example arn:aws:sns:eu-central-1:123456789012:orders";
        return Err(problem(what.into()));
    };
    // Fields are letters here: whether they are in messages is another question.
    match destination.is_fixed() {
        true => check_name(name, LONGEST_NAME).map_err(problem),
        false => check_name(&format!("{name}x"), LONGEST_NAME).map_err(problem),
    }
}

/// The name of a topic in its ARN.
fn name_of(destination: &str) -> &str {
    destination.rsplit(':').next().unwrap_or(destination)
}

impl Shared {
    async fn client(&self) -> &Client {
        let config = &self.config;
        self.client.get_or_init(|| async { Client::new(&config.aws.load(config.connect_timeout).await) }).await
    }
}

#[async_trait]
impl Service for Shared {
    async fn prepare(&self, _: &str) -> Result<(), Failure> {
        self.client().await;
        Ok(())
    }

    async fn send(&self, topic: &str, entries: &[&Entry]) -> Result<Vec<Outcome>, Failure> {
        let mut request = self.client().await.publish_batch().topic_arn(topic);
        for (at, entry) in entries.iter().enumerate() {
            request = request.publish_batch_request_entries(written(at, entry, topic.ends_with(".fifo"))?);
        }
        let answer = request.send().await.map_err(|error| of_sdk(&error))?;
        Ok(of_answer(&answer, entries.len()))
    }
}

fn written(at: usize, entry: &Entry, fifo: bool) -> Result<PublishBatchRequestEntry, Failure> {
    let impossible = |_| Failure::Later("the request cannot be made".into());
    let mut request = PublishBatchRequestEntry::builder().id(at.to_string()).message(&entry.body);
    for (name, value) in &entry.attributes {
        let value = MessageAttributeValue::builder().data_type("String").string_value(value).build();
        request = request.message_attributes(*name, value.map_err(impossible)?);
    }
    if fifo {
        request = request.message_group_id(&entry.group).message_deduplication_id(&entry.deduplication);
    }
    request.build().map_err(impossible)
}

impl SnsSink {
    /// The same in another format.
    pub fn with_format(mut self, format: Format) -> Self {
        self.form = self.form.with_format(format);
        self
    }

    /// A message and where it goes, or why it can never be sent.
    fn write<'a>(&'a self, message: &'a ClaimedMessage) -> Result<(Cow<'a, str>, Entry), String> {
        let destination = self.destination.of(message, |value| match value.contains([':', '.']) {
            false => Ok(Cow::Owned(value.to_owned())),
            true => Err("its destination would have a : or . in it that is not the operator's".into()),
        })?;
        check_name(name_of(&destination), LONGEST_NAME)?;
        let entry = Entry::new(message, &self.form, self.shared.config.max_message_size)?;
        Ok((destination, entry))
    }

    /// Asks the service for something small.
    async fn ask(&self) -> Result<(), String> {
        let client = self.shared.client().await;
        if !self.destination.is_fixed() {
            return match client.list_topics().send().await {
                Err(error) if !is_forbidden(&error) => Err(of_sdk(&error).why().to_owned()),
                _ => Ok(()),
            };
        }
        match client.get_topic_attributes().topic_arn(self.destination.prefix()).send().await {
            // Who may send need not be allowed to ask.
            Err(error) if !is_forbidden(&error) => Err(of_sdk(&error).why().to_owned()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Sink for SnsSink {
    fn max_batch(&self) -> usize {
        self.shared.config.max_batch
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let config = &self.shared.config;
        let deadline = Instant::now() + config.timeout;
        let written: Vec<_> = batch.iter().map(|message| self.write(message)).collect();
        let good: Vec<(&str, &Entry)> = written.iter().flatten().map(|(to, entry)| (to.as_ref(), entry)).collect();
        let mut outcomes = publish(&*self.shared, &good, config.max_message_size, deadline).await.into_iter();
        let mut outcome = |written: &Result<_, String>| match written {
            Ok(_) => outcomes.next().unwrap_or_else(|| Outcome::Unknown("the sink lost sight of it".into())),
            Err(why) => Outcome::Unsendable(why.clone()),
        };
        written.iter().map(&mut outcome).collect()
    }

    async fn ready(&self) -> Result<(), String> {
        let asked = timeout(self.shared.config.connect_timeout, quietly(self.ask())).await;
        asked.unwrap_or_else(|_| Err("the service did not answer within connect_timeout".into()))
    }
}
