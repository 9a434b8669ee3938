//! The sink: finds the adapter of each message's provider.
//!
//! A message for which there is no adapter, no recipient or no payload of the shape is unsendable. Each provider has
//! room and a breaker of its own; with a single provider the dispatcher's breaker minds it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use postrider_core::{ClaimedMessage, Outcome, Sink};
use tokio::time::timeout;

use super::adapter::{Adapter, CHANNEL_MESSAGE_ID, CORRELATION_ID, Outbound, plain_id};
use super::config::ProviderConfig;
use super::noop::NoopAdapter;
use super::slack::SlackAdapter;
use super::telegram::TelegramAdapter;
use super::whatsapp::WhatsappAdapter;
use crate::http::HttpClient;
use crate::http::lane::Lane;
use crate::problem::ConfigProblem;

/// Sends each message through the adapter of its provider.
pub struct ProviderSink {
    name: String,
    providers: BTreeMap<String, Provider>,
    timeout: Duration,
    concurrency: usize,
}

struct Provider {
    adapter: Arc<dyn Adapter>,
    lane: Lane,
}

impl fmt::Debug for ProviderSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSink")
            .field("name", &self.name)
            .field("providers", &self.providers.keys())
            .finish_non_exhaustive()
    }
}

/// Puts a [`ProviderSink`] together.
pub struct ProviderSinkBuilder {
    name: String,
    config: ProviderConfig,
    adapters: Vec<Named>,
}

type Named = (String, Arc<dyn Adapter>);

impl ProviderSinkBuilder {
    /// The sink's name in metrics; `provider` otherwise.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Time limits, room, and the providers that have a table there.
    pub fn config(mut self, config: ProviderConfig) -> Self {
        self.config = config;
        self
    }

    /// Adds an adapter for messages whose provider has this name.
    pub fn adapter(mut self, provider: impl Into<String>, adapter: impl Adapter) -> Self {
        self.adapters.push((provider.into(), Arc::new(adapter)));
        self
    }

    /// Checks everything and gives the sink. It reads `ca_file` and connects to nothing.
    pub fn build(self) -> Result<ProviderSink, ConfigProblem> {
        let Self { name, config, mut adapters } = self;
        let added: Vec<String> = adapters.iter().map(|(name, _)| name.clone()).collect();
        config.problems_with(&added).into_iter().next().map_or(Ok(()), Err)?;
        adapters.extend(configured(&name, &config)?);
        if adapters.is_empty() {
            return Err(ConfigProblem::new(
                "noop",
                "there is no provider; add a table for one, or an adapter of your own",
            ));
        }
        let http = config.http();
        let provider = |(name, adapter)| (name, Provider { adapter, lane: Lane::new(&http) });
        Ok(ProviderSink {
            name,
            providers: adapters.into_iter().map(provider).collect(),
            timeout: config.timeout,
            concurrency: config.concurrency,
        })
    }
}

/// The adapters that the configuration asks for.
fn configured(name: &str, config: &ProviderConfig) -> Result<Vec<Named>, ConfigProblem> {
    let mut adapters: Vec<Named> = Vec::new();
    if let Some(noop) = &config.noop {
        let adapter = Arc::new(NoopAdapter::new(noop));
        adapters.extend(noop.providers.iter().map(|name| (name.clone(), adapter.clone() as Arc<dyn Adapter>)));
    }
    if config.slack.is_none() && config.telegram.is_none() && config.whatsapp.is_none() {
        return Ok(adapters);
    }
    let client = HttpClient::named(name, &config.http())?;
    if let Some(slack) = &config.slack {
        adapters.push(("slack".into(), Arc::new(SlackAdapter::new(&client, slack)?)));
    }
    if let Some(telegram) = &config.telegram {
        adapters.push(("telegram".into(), Arc::new(TelegramAdapter::new(&client, telegram)?)));
    }
    if let Some(whatsapp) = &config.whatsapp {
        adapters.push(("whatsapp".into(), Arc::new(WhatsappAdapter::new(&client, whatsapp)?)));
    }
    Ok(adapters)
}

impl ProviderSink {
    /// A sink by the name of `provider`, with the providers of the configuration.
    pub fn new(config: &ProviderConfig) -> Result<Self, ConfigProblem> {
        Self::named("provider", config)
    }

    /// The same; the name is the sink's in metrics.
    pub fn named(name: impl Into<String>, config: &ProviderConfig) -> Result<Self, ConfigProblem> {
        Self::builder().name(name).config(config.clone()).build()
    }

    /// For a sink with adapters of your own.
    pub fn builder() -> ProviderSinkBuilder {
        ProviderSinkBuilder { name: "provider".into(), config: ProviderConfig::default(), adapters: Vec::new() }
    }

    /// Whether there is nothing else to hold up.
    fn has_one_provider(&self) -> bool {
        self.providers.len() == 1
    }

    async fn publish_one(&self, message: &ClaimedMessage) -> Outcome {
        let outbound = match Outbound::of(message) {
            Ok(outbound) => outbound,
            Err(why) => return self.note(message, "none", Outcome::Unsendable(why)),
        };
        let Some((name, provider)) = self.providers.get_key_value(outbound.provider) else {
            let why = "there is no adapter for its provider; configure one and replay it";
            return self.note(message, "none", Outcome::Unsendable(why.into()));
        };
        let request = match provider.lane.enter(message.id, self.has_one_provider()).await {
            Ok(request) => request,
            Err(busy) => return self.note(message, name, busy),
        };
        let sent = timeout(self.timeout, provider.adapter.send(&outbound)).await;
        let outcome = sent.unwrap_or_else(|_| Outcome::Unknown("the provider did not answer in time".into()));
        self.note(message, name, request.leave(outcome))
    }

    /// Counts and logs an outcome with the producer's own ids.
    fn note(&self, message: &ClaimedMessage, provider: &str, outcome: Outcome) -> Outcome {
        let kind = outcome.kind();
        let labels = [("sink", self.name.clone()), ("provider", provider.to_owned()), ("outcome", kind.to_owned())];
        metrics::counter!("postrider_provider_messages_total", &labels).increment(1);
        if !matches!(outcome, Outcome::Busy { .. }) {
            let id = |name: &str| plain_id(message.headers.get(name).map(String::as_str));
            tracing::info!(
                sink = %self.name, provider, outcome = kind, event_id = %message.id,
                correlation_id = id(CORRELATION_ID), channel_message_id = id(CHANNEL_MESSAGE_ID),
                tenant = message.tenant_id.map(tracing::field::display), attempt = message.attempts,
                "a message for a provider has its outcome"
            );
        }
        outcome
    }
}

#[async_trait]
impl Sink for ProviderSink {
    fn concurrency(&self) -> Option<usize> {
        Some(self.concurrency * self.providers.len())
    }

    /// Each of several providers is left alone by itself while it is down.
    fn minds_outages(&self) -> bool {
        !self.has_one_provider()
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for message in batch {
            outcomes.push(self.publish_one(message).await);
        }
        outcomes
    }

    /// Ready if any of its providers is: the messages of the others are given back meanwhile.
    async fn ready(&self) -> Result<(), String> {
        let ready = async |(name, provider): (&String, &Provider)| {
            let answer = timeout(self.timeout, provider.adapter.ready()).await;
            answer.unwrap_or_else(|_| Err("no answer in time".into())).map_err(|why| format!("{name}: {why}"))
        };
        let answers = join_all(self.providers.iter().map(ready)).await;
        if answers.iter().any(Result::is_ok) {
            return Ok(());
        }
        Err(answers.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("; "))
    }
}
