//! NATS JetStream: a durable pull consumer with explicit acks.
//!
//! Any number of processes share the durable consumer. While a handler runs, the server is told every now and then that
//! it does, so that it does not give the message to another.

use std::future::Future;
use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy, pull};
use async_nats::jetstream::{AckKind, Message};
use futures::StreamExt;
use postrider::inbox::Inbox;
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;

use crate::{Answer, Consumer, Handler};

/// Where messages come from.
#[derive(Clone)]
pub struct Settings {
    /// The server, such as `nats://localhost:4222`.
    pub url: String,
    /// The stream; it must be there.
    pub stream: String,
    /// The durable consumer; it is made if it is not there.
    pub durable: String,
    /// How many events are handled at once.
    pub at_once: usize,
    /// After which time without a sign the server gives a message to another, if the durable consumer is made.
    pub ack_wait: Duration,
}

/// Consumes until it is stopped; what has begun by then is finished.
pub async fn run<I, H>(
    consumer: &Consumer<I, H>,
    settings: &Settings,
    stop: CancellationToken,
) -> Result<(), async_nats::Error>
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    let client = async_nats::connect(&settings.url).await?;
    let stream = async_nats::jetstream::new(client.clone()).get_stream(&settings.stream).await?;
    let config = pull::Config {
        durable_name: Some(settings.durable.clone()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.ack_wait,
        ..pull::Config::default()
    };
    let pull = stream.get_or_create_consumer(&settings.durable, config).await?;
    let ack_wait = check(&pull.cached_info().config)?;
    let messages = pull.stream().max_messages_per_batch(settings.at_once).messages().await?;
    let handle = async |message| match message {
        Ok(message) => on_message(consumer, &message, ack_wait).await,
        Err(error) => tracing::warn!(%error, "no message from NATS; it goes on by itself"),
    };
    messages.take_until(stop.cancelled()).for_each_concurrent(settings.at_once, handle).await;
    // The last acks may still wait to be sent.
    client.flush().await?;
    if stop.is_cancelled() { Ok(()) } else { Err("the server has ended the consumer".into()) }
}

/// Looks at the durable consumer, which may have been there before with other settings; answers its time to acknowledge.
fn check(config: &consumer::Config) -> Result<Duration, async_nats::Error> {
    if config.ack_policy != AckPolicy::Explicit {
        return Err(
            "the durable consumer does not wait for an ack of each message, so it would lose those that fail; \
                    choose another name, or delete it"
                .into(),
        );
    }
    if config.max_deliver > 0 {
        tracing::warn!(
            max_deliver = config.max_deliver,
            "the durable consumer gives a message up after so many deliveries, also during an outage of the inbox"
        );
    }
    Ok(config.ack_wait)
}

async fn on_message<I, H>(consumer: &Consumer<I, H>, message: &Message, ack_wait: Duration)
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    let header = |name: &str| Some(message.headers.as_ref()?.get(name)?.as_str());
    let answer = in_progress(message, ack_wait / 3, consumer.on_message(header, &message.payload)).await;
    let told = match answer.again_after() {
        None => message.ack().await,
        Some(wait) => message.ack_with(AckKind::Nak(Some(wait))).await,
    };
    if let Err(error) = told {
        // The server brings it again, and the inbox knows it if it was handled.
        tracing::warn!(%error, "NATS was not told about a message");
    }
}

/// Waits for a handler, and tells the server meanwhile that it runs.
async fn in_progress(message: &Message, every: Duration, handling: impl Future<Output = Answer>) -> Answer {
    tokio::pin!(handling);
    let mut tick = interval_at(Instant::now() + every, every);
    loop {
        tokio::select! {
            answer = &mut handling => return answer,
            _ = tick.tick() => if let Err(error) = message.ack_with(AckKind::Progress).await {
                tracing::warn!(%error, "NATS was not told that a message is being handled");
            },
        }
    }
}
