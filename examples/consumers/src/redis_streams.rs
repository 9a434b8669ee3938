//! Redis Streams: a consumer group.
//!
//! An entry that was given to a consumer stays pending until it is acknowledged, whatever becomes of the consumer. So one
//! that is not handled is simply left: after `idle` any consumer of the group takes it over with `XAUTOCLAIM`, together
//! with what dead consumers left behind. If a handler takes longer than `idle`, its entry is taken over as well; the inbox
//! says then that it is in progress, and it is left once more.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use postrider::inbox::Inbox;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamAutoClaimOptions, StreamAutoClaimReply, StreamId, StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands, AsyncConnectionConfig, Client, RedisResult, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Consumer, Handler};

/// The field with the body; all others are headers.
const PAYLOAD: &str = "payload";
/// The longest wait for new entries, and so the longest wait for a stop.
const BLOCK: Duration = Duration::from_secs(1);
/// How long an answer of the server may take besides.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where messages come from.
#[derive(Clone)]
pub struct Settings {
    /// The server, such as `redis://localhost:6379`.
    pub url: String,
    /// The key of the stream.
    pub stream: String,
    /// The group; it is made if it is not there, and begins with the oldest entry.
    pub group: String,
    /// The name of this process in the group, unlike all others.
    pub member: String,
    /// How many events are handled at once.
    pub at_once: usize,
    /// After which time an entry that was not acknowledged is given to another consumer.
    pub idle: Duration,
}

/// Consumes until it is stopped; what has begun by then is finished.
pub async fn run<I, H>(consumer: &Consumer<I, H>, settings: &Settings, stop: CancellationToken) -> RedisResult<()>
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        // It must be longer than a read may block.
        .set_response_timeout(Some(BLOCK + PATIENCE));
    let client = Client::open(settings.url.as_str())?;
    let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
    make_group(&mut redis, settings).await?;
    // Of the whole group somebody looks far more often than that.
    let every = settings.idle / 2;
    let mut look = Instant::now();
    while !stop.is_cancelled() {
        if look <= Instant::now() {
            look_for_the_abandoned(consumer, &mut redis, settings, &stop).await?;
            look = Instant::now() + every;
        }
        let entries = read_new(&mut redis, settings, BLOCK.min(every)).await?;
        handle(consumer, &redis, settings, entries).await?;
    }
    Ok(())
}

async fn make_group(redis: &mut MultiplexedConnection, settings: &Settings) -> RedisResult<()> {
    match redis.xgroup_create_mkstream(&settings.stream, &settings.group, "0").await {
        Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
        made => made,
    }
}

/// Waits for entries that nobody has had.
async fn read_new(
    redis: &mut MultiplexedConnection,
    settings: &Settings,
    wait: Duration,
) -> RedisResult<Vec<StreamId>> {
    let wait = usize::try_from(wait.as_millis()).unwrap_or(usize::MAX).max(1);
    let options =
        StreamReadOptions::default().group(&settings.group, &settings.member).count(settings.at_once).block(wait);
    let reply: Option<StreamReadReply> = redis.xread_options(&[&settings.stream], &[">"], &options).await?;
    Ok(reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids).collect())
}

/// Takes over what has been pending for too long: ours that failed, and what dead consumers left.
async fn look_for_the_abandoned<I, H>(
    consumer: &Consumer<I, H>,
    redis: &mut MultiplexedConnection,
    settings: &Settings,
    stop: &CancellationToken,
) -> RedisResult<()>
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    let Settings { stream, group, member, .. } = settings;
    let idle = u64::try_from(settings.idle.as_millis()).unwrap_or(u64::MAX);
    let mut from = "0-0".to_owned();
    while !stop.is_cancelled() {
        let options = StreamAutoClaimOptions::default().count(settings.at_once);
        let taken: StreamAutoClaimReply = redis.xautoclaim_options(stream, group, member, idle, &from, options).await?;
        if !taken.deleted_ids.is_empty() {
            let count = taken.deleted_ids.len();
            tracing::error!(stream, count, "entries were trimmed before they were handled; the stream is too short");
        }
        handle(consumer, redis, settings, taken.claimed).await?;
        from = taken.next_stream_id;
        if from == "0-0" {
            break;
        }
    }
    Ok(())
}

async fn handle<I, H>(
    consumer: &Consumer<I, H>,
    redis: &MultiplexedConnection,
    settings: &Settings,
    entries: Vec<StreamId>,
) -> RedisResult<()>
where
    I: Inbox,
    H: Handler<I::Guard>,
{
    let handled = stream::iter(entries).map(async |entry| {
        let field = |name: &str| match entry.map.get(name) {
            Some(Value::BulkString(bytes)) => Some(bytes.as_slice()),
            _ => None,
        };
        let header = |name: &str| std::str::from_utf8(field(name)?).ok();
        let answer = consumer.on_message(header, field(PAYLOAD).unwrap_or_default()).await;
        match answer.again_after() {
            None => redis.clone().xack(&settings.stream, &settings.group, &[&entry.id]).await.map(|_: usize| ()),
            // It stays pending. How long it waits is up to `idle`.
            Some(_) => Ok(()),
        }
    });
    handled.buffer_unordered(settings.at_once.max(1)).collect::<Vec<_>>().await.into_iter().collect()
}
