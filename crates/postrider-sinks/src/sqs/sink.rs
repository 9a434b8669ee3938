//! The client that all routes share, and the sink of one route.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use postrider_core::{ClaimedMessage, Destination, Outcome, Sink};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::config::SqsConfig;
use super::outcome::of_answer;
use crate::aws::{CLOUDEVENTS, Entry, Failure, Service, check_name, is_forbidden, of_sdk, publish, quietly};
use crate::format::{Form, Format};
use crate::kind::{Binding, SinkClient};
use crate::problem::ConfigProblem;

/// The most characters of a queue's name.
const LONGEST_NAME: usize = 80;
/// The most addresses of queues that are remembered.
const MOST_ADDRESSES: usize = 1_000;

/// What all routes to a sink share: connections and the addresses of queues. Clones are the same client.
#[derive(Clone)]
pub struct SqsClient {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    config: SqsConfig,
    form: Form,
    /// Made when it is first needed, because looking for credentials may take a while.
    client: OnceCell<Client>,
    addresses: Mutex<HashMap<String, String>>,
}

/// The sink of one route: its destination is a queue.
pub struct SqsSink {
    shared: Arc<Shared>,
    destination: Destination,
    form: Form,
}

impl fmt::Debug for SqsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsClient").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for SqsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SqsSink");
        shown.field("name", &self.shared.name).field("destination", &self.destination).finish_non_exhaustive()
    }
}

impl SqsClient {
    /// A client by the name of `sqs`. It connects to nothing yet.
    pub fn new(config: &SqsConfig) -> Result<Self, ConfigProblem> {
        Self::named("sqs", config)
    }

    /// A client; the name is the sink's in logs.
    pub fn named(name: impl Into<String>, config: &SqsConfig) -> Result<Self, ConfigProblem> {
        config.check()?;
        let shared = Shared {
            name: name.into(),
            form: Form::new(config.format, &config.source, CLOUDEVENTS)?,
            config: config.clone(),
            client: OnceCell::new(),
            addresses: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The sink of a route: its destination is the name or address of a queue.
    pub fn sink(&self, destination: Destination) -> Result<SqsSink, ConfigProblem> {
        check_destination(&destination)?;
        Ok(SqsSink { shared: self.shared.clone(), destination, form: self.shared.form.clone() })
    }
}

impl SinkClient for SqsClient {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        let sink = self.sink(binding.needed("orders or events-{topic}")?.clone())?;
        Ok(Arc::new(match binding.format {
            Some(format) => sink.with_format(format),
            None => sink,
        }))
    }
}

/// Whether a destination can be a queue's name or address; what comes from messages is checked with each of them.
pub(super) fn check_destination(destination: &Destination) -> Result<(), ConfigProblem> {
    let problem = |what: String| ConfigProblem::new("destination", what);
    let prefix = destination.prefix();
    if prefix.contains(':') || prefix.contains('/') {
        let rest = prefix.strip_prefix("https://").or_else(|| prefix.strip_prefix("http://"));
        let parts = rest.map(|rest| rest.split('/').count()).unwrap_or_default();
        if parts < 3 {
            let what = "it is no queue's address; write for example https://sqs.eu-central-1.amazonaws.com/123456789012/orders";
            return Err(problem(what.into()));
        }
    }
    // Fields are letters here: whether they are in messages is another question.
    let name = name_of(prefix);
    match destination.is_fixed() {
        true => check_name(name, LONGEST_NAME).map_err(problem),
        false => check_name(&format!("{name}x"), LONGEST_NAME).map_err(problem),
    }
}

/// The name of a queue in its address, or the name itself.
fn name_of(destination: &str) -> &str {
    destination.rsplit('/').next().unwrap_or(destination)
}

impl Shared {
    async fn client(&self) -> &Client {
        let config = &self.config;
        self.client.get_or_init(|| async { Client::new(&config.aws.load(config.connect_timeout).await) }).await
    }

    /// The address of a queue, by its name if it is not one already.
    async fn address(&self, queue: &str) -> Result<String, Failure> {
        if queue.contains('/') {
            return Ok(queue.to_owned());
        }
        let known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner).get(queue).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.client().await.get_queue_url().queue_name(queue).send().await;
        // Nothing was sent yet, whatever the failure is.
        let found = found.map_err(|error| Failure::Later(of_sdk(&error).why().to_owned()))?;
        let address = found.queue_url().ok_or_else(|| Failure::Later("the queue has no address".into()))?.to_owned();
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= MOST_ADDRESSES {
            addresses.clear();
        }
        addresses.insert(queue.to_owned(), address.clone());
        Ok(address)
    }
}

#[async_trait]
impl Service for Shared {
    async fn prepare(&self, queue: &str) -> Result<(), Failure> {
        self.client().await;
        self.address(queue).await.map(drop)
    }

    async fn send(&self, queue: &str, entries: &[&Entry]) -> Result<Vec<Outcome>, Failure> {
        let address = self.address(queue).await?;
        let mut request = self.client().await.send_message_batch().queue_url(address);
        for (at, entry) in entries.iter().enumerate() {
            request = request.entries(written(at, entry, queue.ends_with(".fifo"))?);
        }
        let answer = request.send().await.map_err(|error| of_sdk(&error))?;
        Ok(of_answer(&answer, entries.len()))
    }
}

fn written(at: usize, entry: &Entry, fifo: bool) -> Result<SendMessageBatchRequestEntry, Failure> {
    let impossible = |_| Failure::Later("the request cannot be made".into());
    let mut request = SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(&entry.body);
    for (name, value) in &entry.attributes {
        let value = MessageAttributeValue::builder().data_type("String").string_value(value).build();
        request = request.message_attributes(*name, value.map_err(impossible)?);
    }
    if fifo {
        request = request.message_group_id(&entry.group).message_deduplication_id(&entry.deduplication);
    }
    request.build().map_err(impossible)
}

impl SqsSink {
    /// The same in another format.
    pub fn with_format(mut self, format: Format) -> Self {
        self.form = self.form.with_format(format);
        self
    }

    /// A message and where it goes, or why it can never be sent.
    fn write<'a>(&'a self, message: &'a ClaimedMessage) -> Result<(Cow<'a, str>, Entry), String> {
        let destination = self.destination.of(message, |value| match value.contains(['/', '.']) {
            false => Ok(Cow::Owned(value.to_owned())),
            true => Err("its destination would have a / or . in it that is not the operator's".into()),
        })?;
        check_name(name_of(&destination), LONGEST_NAME)?;
        let entry = Entry::new(message, &self.form, self.shared.config.max_message_size)?;
        Ok((destination, entry))
    }

    /// Asks the service for something small.
    async fn ask(&self) -> Result<(), String> {
        let client = self.shared.client().await;
        if !self.destination.is_fixed() {
            return match client.list_queues().max_results(1).send().await {
                Err(error) if !is_forbidden(&error) => Err(of_sdk(&error).why().to_owned()),
                _ => Ok(()),
            };
        }
        let address =
            self.shared.address(self.destination.prefix()).await.map_err(|failure| failure.why().to_owned())?;
        let asked = client.get_queue_attributes().queue_url(address).attribute_names(QueueAttributeName::QueueArn);
        match asked.send().await {
            // Who may send need not be allowed to ask.
            Err(error) if !is_forbidden(&error) => Err(of_sdk(&error).why().to_owned()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Sink for SqsSink {
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
