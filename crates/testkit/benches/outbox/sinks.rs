//! Messages through the whole relay (PostgreSQL, dispatcher, sink, broker) and the same messages by the broker's bare client.
//!
//! The bare client is used as its documentation recommends for throughput: pipelined, and with the same confirmations as
//! the sink asks for. It reads from memory; the relay claims from and settles in a durable database besides.

mod amqp;
mod aws;
mod kafka;
mod nats;
mod pubsub;
mod redis;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use postrider::sinks::Format;
use postrider::sinks::format::{Form, Source};
use postrider::store::Delivered;
use postrider::{
    BreakerConfig, ClaimedMessage, Dispatcher, DispatcherBuilder, Message, Payload, PostgresStore, PublishError, Route,
    Router, Sink, callback,
};
use sqlx::PgPool;
use testkit::Postgres;
use testkit::sinks::of_payload;
use tokio_util::sync::CancellationToken;

use crate::subject::Subject;
use crate::{median, payload};

const ROUNDS: usize = 3;
/// How long a round may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Whether anything is left to deliver; a look at the partial indexes, so that asking often costs nothing.
const IS_OPEN: &str = "select exists (select from outbox_messages where status = 'pending') \
                       or exists (select from outbox_messages where status = 'processing')";
/// Messages to a sink that does nothing: what the database allows.
const CEILING: usize = 200_000;
const WARM_UP: usize = 2_000;
/// Messages per transaction when an outbox is filled.
const FILL: usize = 1_000;

/// A message as bare clients send it.
pub struct Parcel {
    pub id: String,
    pub key: String,
    pub body: Vec<u8>,
    pub headers: Vec<(String, String)>,
}

/// A broker that is measured.
#[allow(async_fn_in_trait)] // awaited on the bench's own task
pub trait Peer: Sized {
    const NAME: &'static str;
    /// How many messages make a round of some seconds.
    const MESSAGES: usize;

    async fn start() -> Result<Self>;

    /// Our sink.
    async fn sink(&self) -> Result<Arc<dyn Sink>>;

    /// How the relay is set for this broker; as for every other, unless the broker cannot take that.
    fn relay(relay: DispatcherBuilder) -> DispatcherBuilder {
        relay
    }

    /// Sends all messages with the bare client and waits until each is confirmed.
    async fn bare(&self, parcels: &[Parcel]) -> Result<()>;
}

/// What `sinks` may be followed by.
pub const NAMES: [&str; 7] = ["kafka", "pubsub", "nats", "amqp", "redis", "sqs", "sns"];

pub async fn run(server: &Postgres, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let nothing = callback(|_| async { Ok::<(), PublishError>(()) });
    let ceiling = relay_rate(server, Arc::new(nothing), |relay| relay, CEILING).await?;
    println!("the relay with a sink that does nothing: {ceiling:.0} messages/s");
    if wanted("kafka") {
        measure::<kafka::Peer>(server).await?;
    }
    if wanted("pubsub") {
        measure::<pubsub::Peer>(server).await?;
    }
    if wanted("nats") {
        measure::<nats::Peer>(server).await?;
    }
    if wanted("amqp") {
        measure::<amqp::Peer>(server).await?;
    }
    if wanted("redis") {
        measure::<redis::Peer>(server).await?;
    }
    if wanted("sqs") {
        measure::<aws::Queue>(server).await?;
    }
    if wanted("sns") {
        measure::<aws::Topic>(server).await?;
    }
    Ok(())
}

async fn measure<P: Peer>(server: &Postgres) -> Result<()> {
    let messages: usize = std::env::var("MESSAGES").ok().map_or(Ok(P::MESSAGES), |text| text.parse())?;
    println!("sink {}: {messages} messages of 200 bytes, {ROUNDS} rounds", P::NAME);
    let peer = P::start().await?;
    let parcels: Vec<Parcel> = parcels(messages)?;
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    // A first round that does not count: both clients find their broker, and the code is warm.
    let sink = peer.sink().await?;
    peer.bare(&parcels[..messages.min(WARM_UP)]).await?;
    relay_rate(server, sink.clone(), P::relay, messages.min(WARM_UP)).await?;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        peer.bare(&parcels).await?;
        let bare = messages as f64 / started.elapsed().as_secs_f64();
        let ours = relay_rate(server, sink.clone(), P::relay, messages).await?;
        println!("  bare client {bare:.0}/s, through the relay {ours:.0}/s, ratio {:.2}", ours / bare);
        ratios.push(ours / bare);
        rates.push(ours);
    }
    println!("sink {}: median ratio {:.2}, median {:.0} messages/s", P::NAME, median(ratios), median(rates));
    Ok(())
}

/// What the sink would send, with all its headers.
fn parcels(messages: usize) -> Result<Vec<Parcel>> {
    let form = Form::new(Format::Plain, Source::DEFAULT, "")?;
    let payload = payload().to_string();
    let parcel = |at: usize| {
        let mut message: ClaimedMessage = of_payload(Payload::Json(payload.clone()));
        message.key = Some(format!("key-{}", at % 1_000));
        let content = form.content(&message).map_err(anyhow::Error::msg)?;
        let headers = content.headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let (id, key) = (message.id.to_string(), format!("key-{}", at % 1_000));
        Ok(Parcel { id, key, body: content.body.into_owned(), headers })
    };
    (0..messages).map(parcel).collect()
}

/// Fills an outbox.
async fn fill(pool: &PgPool, store: &PostgresStore, messages: usize) -> Result<()> {
    let payload = payload();
    for at in (0..messages).step_by(FILL) {
        let batch = (0..FILL.min(messages - at)).map(|_| Message::json("bench", "drain", &payload));
        let mut transaction = pool.begin().await?;
        store.outbox().enqueue_many(&mut transaction, batch).await?;
        transaction.commit().await?;
    }
    Ok(())
}

async fn relay_rate(
    server: &Postgres,
    sink: Arc<dyn Sink>,
    relay: fn(DispatcherBuilder) -> DispatcherBuilder,
    messages: usize,
) -> Result<f64> {
    let pool = server.fresh().await?;
    let store = <Postgres as Subject>::store(&pool).await?;
    fill(&pool, &store, messages).await?;
    Postgres::settle_down(&pool).await?;
    let router = Router::new(vec![Route::to("bench", sink)], BreakerConfig::default());
    let dispatcher = Dispatcher::builder(store, router).batch_size(1_000).max_rows(8_000).delivered(Delivered::Keep);
    let dispatcher = relay(dispatcher).build()?;
    let stop = CancellationToken::new();
    let started = Instant::now();
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    while sqlx::query_scalar(IS_OPEN).fetch_one(&pool).await? {
        if started.elapsed() > PATIENCE {
            let why: Option<String> =
                sqlx::query_scalar("select max(last_error) from outbox_messages").fetch_one(&pool).await?;
            bail!("the relay did not finish: {}", why.as_deref().unwrap_or("it is slow"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    stop.cancel();
    ensure!(running.await?.abandoned == 0, "publishes were abandoned");
    Ok(rate)
}
