//! The publisher service: a worker that looks at a fixed interval, publishes to Kafka and writes down what became of it. Any number
//! of them may run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider::sinks::{KafkaClient, KafkaConfig};
use postrider::{Dispatcher, Ended, Sink};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::outbox::OutboxRepository;

/// How a publisher works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How often it looks, `OUTBOX_INTERVAL_MS`; at most a third of the lock time-out.
    pub interval: Duration,
    /// Rows per look, `OUTBOX_BATCH_SIZE`.
    pub batch_size: u32,
    /// Failures after which a record is a dead letter.
    pub max_retries: u32,
    /// The wait after the first failure; it doubles with each.
    pub backoff: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), batch_size: 50, max_retries: 5, backoff: Duration::from_secs(1) }
    }
}

impl Settings {
    /// The defaults, but for what the environment says.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str| {
            let text = variable(name);
            text.map(|text| text.parse::<u32>().with_context(|| format!("{name} is {text:?}; give a whole number")))
                .transpose()
        };
        let usual = Self::default();
        let interval = number("OUTBOX_INTERVAL_MS")?.map(|ms| Duration::from_millis(ms.into()));
        Ok(Self {
            interval: interval.unwrap_or(usual.interval),
            batch_size: number("OUTBOX_BATCH_SIZE")?.unwrap_or(usual.batch_size),
            ..usual
        })
    }
}

/// A producer, to be shared by all publishers of a process.
pub fn kafka(brokers: String) -> Result<KafkaClient> {
    let mut config = KafkaConfig::default();
    config.brokers = vec![brokers];
    Ok(KafkaClient::new(&config)?)
}

/// The topic of a record is the topic in Kafka.
pub fn sink(kafka: &KafkaClient) -> Result<Arc<dyn Sink>> {
    Ok(Arc::new(kafka.sink("{topic}".parse()?)?))
}

/// A worker. It ends when it is stopped; dropped, it is cut off in the middle of its work.
pub struct OutboxPublisherService {
    task: JoinHandle<Ended>,
    stop: CancellationToken,
}

impl OutboxPublisherService {
    /// Starts a worker.
    pub fn start(outbox: &OutboxRepository, sink: Arc<dyn Sink>, settings: Settings) -> Result<Self> {
        let store = outbox.store();
        let dispatcher = Dispatcher::builder_shared(Arc::new(store), sink)
            .name("chat-gateway")
            .poll_interval(settings.interval)
            .lease(outbox.lock_timeout())
            .batch_size(settings.batch_size)
            .max_attempts(settings.max_retries)
            .backoff(settings.backoff, settings.backoff.max(Duration::from_secs(60)))
            .build()?;
        let stop = CancellationToken::new();
        Ok(Self { task: tokio::spawn(dispatcher.run(stop.clone())), stop })
    }

    /// Finishes what it has begun, and ends.
    pub async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        let ended = (&mut self.task).await?;
        ensure!(ended.abandoned == 0, "{} publishes were cut off", ended.abandoned);
        Ok(())
    }
}

impl Drop for OutboxPublisherService {
    fn drop(&mut self) {
        self.task.abort();
    }
}
