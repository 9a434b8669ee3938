//! The publisher: rows of the locked table to one topic. It knows the table and the topic, and nothing of orders.
//!
//! Rows are taken oldest first with `for update skip locked` and stay locked until Pub/Sub has answered; then `published_at` is set,
//! or `attempt_count` and `last_error`. If the process dies, the database frees its rows at once. What was published just before is
//! published again, with the same `event_id`: consumers must be idempotent.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use postrider::layout::Layout;
use postrider::message::AGGREGATE_TYPE;
use postrider::sinks::{PubsubConfig, PubsubSink};
use postrider::{BatchFor, BreakerConfig, ClaimedMessage, Dispatcher, Outcome, PostgresStore, Sink};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

/// The one topic of all events; subscriptions choose by the attribute `event_type`.
pub const TOPIC: &str = "pf-domain-events";
/// The longest pause between trials while Pub/Sub is down.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a readiness check may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(4);

/// A publisher that has not started yet.
pub struct Publisher {
    store: PostgresStore,
    sink: Arc<dyn Sink>,
    settings: Settings,
}

impl Publisher {
    /// From a database to a topic. Neither is asked for anything yet.
    pub fn new(pool: PgPool, pubsub: &PubsubConfig, settings: Settings) -> Result<Self> {
        let layout =
            Layout { batch: settings.batch_size, give_up_after: Some(settings.max_attempts), ..Layout::packfinderz() };
        let store = PostgresStore::with_layout(pool, layout)?;
        let sink = PubsubSink::connect(pubsub, TOPIC.parse()?).context("the settings of Pub/Sub are wrong")?;
        Ok(Self { store, sink: Arc::new(Logged(sink)), settings })
    }

    /// Where events go.
    pub fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    /// The same publisher with another way to its topic.
    pub fn through(self, sink: Arc<dyn Sink>) -> Self {
        Self { sink, ..self }
    }

    /// Makes the table, if it is not there. Where migrations are run by others, this is theirs to do.
    pub async fn migrate(&self) -> Result<()> {
        self.store.migrate().await.context("cannot make the table outbox_events")?;
        Ok(())
    }

    /// The loop. Any number of them may run, in any number of processes.
    pub fn dispatcher(&self) -> Result<Dispatcher> {
        let Settings { batch_size, poll, max_attempts, .. } = self.settings;
        let pauses = BreakerConfig { first_pause: poll, longest_pause: LONGEST_PAUSE, ..BreakerConfig::default() };
        let dispatcher = Dispatcher::builder_shared(Arc::new(self.store.clone()), self.sink.clone())
            .name("outbox-publisher")
            .batch_size(batch_size)
            .poll_interval(poll)
            .max_attempts(max_attempts)
            .backoff(poll, LONGEST_PAUSE)
            .breaker(pauses);
        Ok(dispatcher.build()?)
    }

    /// Publishes, and answers `/readyz`, until it is told to stop. Neither ends by itself; if one does, that is an error, so that
    /// whoever looks after the process knows, and starts another.
    pub async fn serve(&self, listener: TcpListener, stopped: impl Future<Output = ()>) -> Result<()> {
        let stop = CancellationToken::new();
        let health = axum::serve(listener, self.health()).with_graceful_shutdown(stop.clone().cancelled_owned());
        let mut health = tokio::spawn(health.into_future());
        let mut loops = tokio::spawn(self.dispatcher()?.run(stop.clone()));
        tokio::select! {
            ended = &mut loops => bail!("the publisher does not run any more: {ended:?}"),
            ended = &mut health => bail!("/readyz is not answered any more: {ended:?}"),
            () = stopped => {}
        }
        stop.cancel();
        let ended = loops.await?;
        tracing::info!(abandoned = ended.abandoned, "stopped");
        Ok(health.await??)
    }

    /// Whether the database and Pub/Sub answer; which of them does not, otherwise.
    pub async fn ready(&self) -> Result<(), String> {
        ready(self.store.pool(), &*self.sink).await
    }

    /// `/readyz` for whoever looks after the process.
    pub fn health(&self) -> Router {
        let readyz = |State((pool, sink)): State<(PgPool, Arc<dyn Sink>)>| async move {
            match ready(&pool, &*sink).await {
                Ok(()) => (StatusCode::OK, "ready".to_owned()),
                Err(what) => (StatusCode::SERVICE_UNAVAILABLE, what),
            }
        };
        Router::new().route("/readyz", get(readyz)).with_state((self.store.pool().clone(), self.sink.clone()))
    }
}

async fn ready(pool: &PgPool, sink: &dyn Sink) -> Result<(), String> {
    let database = sqlx::query("select 1 from outbox_events limit 1").execute(pool);
    match tokio::time::timeout(ANSWERS_WITHIN, database).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => return Err("the database is not ready".into()),
    }
    let pubsub = tokio::time::timeout(ANSWERS_WITHIN, sink.ready()).await;
    pubsub.unwrap_or_else(|_| Err("no answer".into())).map_err(|why| format!("Pub/Sub is not ready: {why}"))
}

/// A sink that says in the log which events were published, and about what they were. The dispatcher says the same of those that
/// will be tried again or are given up. Payloads and errors are not logged: the row has them.
struct Logged<S>(S);

#[async_trait]
impl<S: Sink> Sink for Logged<S> {
    fn max_batch(&self) -> usize {
        self.0.max_batch()
    }

    fn concurrency(&self) -> Option<usize> {
        self.0.concurrency()
    }

    fn batch_for(&self, message: &ClaimedMessage) -> BatchFor {
        self.0.batch_for(message)
    }

    fn keeps_order(&self) -> bool {
        self.0.keeps_order()
    }

    fn keeps_order_for(&self, message: &ClaimedMessage) -> bool {
        self.0.keeps_order_for(message)
    }

    fn minds_outages(&self) -> bool {
        self.0.minds_outages()
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let outcomes = self.0.publish(batch).await;
        let published = |outcome: &Outcome| matches!(outcome, Outcome::Accepted | Outcome::Duplicate);
        for (event, outcome) in batch.iter().zip(&outcomes).filter(|(_, outcome)| published(outcome)) {
            tracing::info!(
                event_id = %event.id,
                event_type = event.topic,
                aggregate_type = event.headers.get(AGGREGATE_TYPE),
                aggregate_id = event.key,
                attempt = event.attempts,
                outcome = outcome.kind(),
                "publish"
            );
        }
        outcomes
    }

    async fn ready(&self) -> Result<(), String> {
        self.0.ready().await
    }
}
