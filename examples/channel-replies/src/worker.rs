//! The worker: takes due replies under the relay's role, hands them to the adapter of their provider, and writes what came of it.
//! It runs in the program, where channels are on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use postrider::layout::Layout;
use postrider::sinks::ProviderSink;
use postrider::sinks::provider::{Adapter, CHANNEL_MESSAGE_ID, CORRELATION_ID, Normalised};
use postrider::{BreakerConfig, ClaimedMessage, Dispatcher, Ended, Outbox, Outcome, PostgresStore, Sink};
use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::OutboxSettings;

/// How long a provider that is down is left alone at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The table of replies. Its columns for provider and recipient are the headers that the provider sink looks for.
pub fn layout(settings: &OutboxSettings) -> Layout {
    Layout { lock_timeout: settings.lock_timeout, usual_max_attempts: Some(settings.max_attempts), ..Layout::valinor() }
}

/// The outbox that the ingress writes to.
pub fn outbox(settings: &OutboxSettings) -> Result<Outbox> {
    Ok(Outbox::with_layout(layout(settings))?)
}

/// The replies, for operators and for the worker. The pool is one of the relay's role.
pub fn store(relay: PgPool, settings: &OutboxSettings) -> Result<PostgresStore> {
    Ok(PostgresStore::with_layout(relay, layout(settings))?)
}

/// Starts the worker, unless it is switched off.
pub fn start(
    relay: PgPool,
    adapters: impl IntoIterator<Item = (String, Arc<dyn Adapter>)>,
    settings: &OutboxSettings,
    stop: CancellationToken,
) -> Result<Option<JoinHandle<Ended>>> {
    if !settings.enabled {
        tracing::info!("the outbox worker is off; replies wait");
        return Ok(None);
    }
    let mut sink = ProviderSink::builder().name("channels");
    for (provider, adapter) in adapters {
        sink = sink.adapter(provider, adapter);
    }
    let sink = Traced { sink: sink.build()?, max_attempts: i32::try_from(settings.max_attempts)? };
    let first_pause = settings.backoff.base.min(LONGEST_PAUSE);
    let dispatcher = Dispatcher::builder(store(relay, settings)?, sink)
        .name("channel-outbox")
        .batch_size(settings.claim_batch_size)
        .poll_interval(settings.poll_interval)
        .lease(settings.lock_timeout)
        .max_attempts(settings.max_attempts)
        .retry_policy(settings.backoff)
        .breaker(BreakerConfig { first_pause, longest_pause: LONGEST_PAUSE, ..BreakerConfig::default() })
        .build()?;
    Ok(Some(tokio::spawn(dispatcher.run(stop))))
}

/// Logs each step of a reply with the ids that its webhook knows.
struct Traced {
    sink: ProviderSink,
    max_attempts: i32,
}

impl Traced {
    /// What comes of an outcome; `None` if the reply is only given back.
    fn step(&self, reply: &ClaimedMessage, outcome: &Outcome) -> Option<&'static str> {
        match outcome {
            Outcome::Accepted | Outcome::Duplicate => Some("sent"),
            Outcome::Busy { .. } => None,
            Outcome::Retry { .. } | Outcome::Unknown(_)
                if reply.attempts < reply.allowed_attempts(self.max_attempts) =>
            {
                Some("retry")
            }
            _ => Some("dead"),
        }
    }
}

#[async_trait]
impl Sink for Traced {
    fn concurrency(&self) -> Option<usize> {
        self.sink.concurrency()
    }

    fn minds_outages(&self) -> bool {
        self.sink.minds_outages()
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let batch: Vec<ClaimedMessage> = batch.iter().cloned().map(correlated).collect();
        batch.iter().for_each(|reply| log(reply, "claim"));
        let outcomes = self.sink.publish(&batch).await;
        for (reply, outcome) in batch.iter().zip(&outcomes) {
            if let Some(step) = self.step(reply, outcome) {
                log(reply, step);
            }
        }
        outcomes
    }

    async fn ready(&self) -> Result<(), String> {
        self.sink.ready().await
    }
}

/// Gives a reply the correlation id that its payload has.
fn correlated(mut reply: ClaimedMessage) -> ClaimedMessage {
    let payload = Normalised::of(&reply.payload).ok();
    let ours = payload.as_ref().and_then(|payload| payload.for_provider("channels"));
    if let Some(id) = ours.and_then(|ours| ours.get("correlation_id")?.as_str()) {
        reply.headers.insert(CORRELATION_ID.to_owned(), id.to_owned());
    }
    reply
}

fn log(reply: &ClaimedMessage, step: &'static str) {
    let id = |name: &str| reply.headers.get(name).map(String::as_str);
    let (correlation_id, channel_message_id) = (id(CORRELATION_ID), id(CHANNEL_MESSAGE_ID));
    let (provider, attempt) = (reply.topic.as_str(), reply.attempts);
    match step {
        "dead" => tracing::error!(step, correlation_id, channel_message_id, provider, attempt, "channel reply"),
        "retry" => tracing::warn!(step, correlation_id, channel_message_id, provider, attempt, "channel reply"),
        _ => tracing::info!(step, correlation_id, channel_message_id, provider, attempt, "channel reply"),
    }
}
