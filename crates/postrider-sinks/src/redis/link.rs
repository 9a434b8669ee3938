//! The connection to a server or cluster, and getting a new one.
//!
//! A [`Link`] that failed is not used again: what waited in it is dropped with it and never sent. The library's own
//! attempts to repeat commands are switched off, because it cannot know whether the first one was carried out.
//!
//! Servers and firewalls close connections on which nothing happens, and a message sent on such a connection would be
//! unknown. So one that has rested is asked first, and replaced if it does not answer.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError,
    RedisResult, TlsCertificates, Value,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::config::RedisConfig;
use super::outcome::no_connection;
use crate::problem::ConfigProblem;
use crate::tls;

/// How long a connection may rest before it is asked whether it is still there.
const RESTED: Duration = Duration::from_secs(1);

/// The most commands that wait to be written.
const MOST_QUEUED: usize = 1_024;

/// One connection. Clones are the same connection; it is closed with the last.
#[derive(Clone)]
pub(super) struct Link {
    way: Way,
    number: u64,
}

#[derive(Clone)]
enum Way {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    /// Sends commands together and answers what each was answered.
    pub(super) async fn send(&self, pipeline: &Pipeline) -> RedisResult<Vec<Value>> {
        match self.way.clone() {
            Way::Server(mut line) => line.req_packed_commands(pipeline, 0, pipeline.len()).await,
            Way::Cluster(mut line) => line.req_packed_commands(pipeline, 0, pipeline.len()).await,
        }
    }

    /// How many replicas have all that was sent on this connection; only of one server.
    pub(super) async fn replicas(&self, wanted: u32, millis: u128) -> RedisResult<u32> {
        let Way::Server(mut line) = self.way.clone() else { return Ok(0) };
        redis::cmd("WAIT").arg(wanted).arg(millis.to_string()).query_async(&mut line).await
    }

    /// Whether the connection is still there; of a cluster, those to all servers that take writes.
    async fn is_alive(&self) -> bool {
        let ping = redis::cmd("PING");
        match self.way.clone() {
            Way::Server(mut line) => ping.exec_async(&mut line).await.is_ok(),
            Way::Cluster(mut line) => ping.exec_async(&mut line).await.is_ok(),
        }
    }

    /// Whether the server answers, or the cluster is complete.
    pub(super) async fn ask(&self) -> Result<(), String> {
        match self.way.clone() {
            Way::Server(mut line) => {
                redis::cmd("PING").exec_async(&mut line).await.map_err(|error| no_connection(&error))
            }
            Way::Cluster(mut line) => {
                let info = redis::cmd("CLUSTER").arg("INFO").query_async::<String>(&mut line).await;
                match info.map_err(|error| no_connection(&error))?.contains("cluster_state:ok") {
                    true => Ok(()),
                    false => Err("the cluster is down: not all slots are served".into()),
                }
            }
        }
    }
}

/// The connection in use, if there is one, and how to make the next.
pub(super) struct Links {
    name: String,
    config: RedisConfig,
    maker: Maker,
    slot: Mutex<Slot>,
    /// The number of the last connection that is not to be used again.
    retired: AtomicU64,
}

enum Maker {
    Server(Box<Client>),
    Cluster(Box<ClusterClient>),
}

#[derive(Default)]
struct Slot {
    link: Option<Link>,
    /// When it was last given to somebody.
    used: Option<Instant>,
    made: u64,
    /// When and why the last attempt failed; those who waited for it need not try by themselves.
    failure: Option<(Instant, String)>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Links {
    pub(super) fn new(name: String, config: &RedisConfig) -> Result<Self, ConfigProblem> {
        let maker = match config.cluster {
            true => Maker::Cluster(Box::new(cluster(config)?)),
            false => Maker::Server(Box::new(server(config)?)),
        };
        Ok(Self { name, config: config.clone(), maker, slot: Mutex::default(), retired: AtomicU64::new(0) })
    }

    /// The connection in use, or a new one; the error says why there is none.
    pub(super) async fn link(&self, deadline: Instant) -> Result<Link, String> {
        let asked = Instant::now();
        let slow = |_| "no connection within connect_timeout".to_owned();
        let mut slot = timeout_at(deadline, self.slot.lock()).await.map_err(slow)?;
        let limit = deadline.min(Instant::now() + self.config.connect_timeout);
        let rested = slot.used.replace(asked).is_none_or(|used| asked.saturating_duration_since(used) > RESTED);
        if let Some(link) = slot.link.as_ref().filter(|link| !self.is_retired(link)) {
            // Half of the time, so that there is some left for a new one.
            let soon = Instant::now() + limit.saturating_duration_since(Instant::now()) / 2;
            if !rested || timeout_at(soon, link.is_alive()).await == Ok(true) {
                return Ok(link.clone());
            }
            tracing::warn!(sink = %self.name, "the connection to Redis is lost");
            slot.link = None;
        }
        if let Some((_, why)) = slot.failure.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(why.clone());
        }
        slot.made += 1;
        let number = slot.made;
        let made = timeout_at(limit, self.connect()).await.map_err(slow);
        match made.and_then(|made| made.map_err(|error| no_connection(&error))) {
            Ok(way) => {
                tracing::info!(sink = %self.name, "connected to Redis");
                slot.failure = None;
                Ok(slot.link.insert(Link { way, number }).clone())
            }
            Err(why) => {
                if slot.failure.is_none() {
                    tracing::warn!(sink = %self.name, why, "no connection to Redis");
                }
                slot.failure = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// A connection that failed is not used again.
    pub(super) fn retire(&self, link: &Link) {
        if self.retired.fetch_max(link.number, Ordering::SeqCst) < link.number {
            tracing::warn!(sink = %self.name, "the connection to Redis is given up");
        }
        // Who holds the slot is about to replace it or will see the number; nobody waits for that at a deadline.
        if let Ok(mut slot) = self.slot.try_lock() {
            slot.link.take_if(|used| used.number <= link.number);
        }
    }

    fn is_retired(&self, link: &Link) -> bool {
        link.number <= self.retired.load(Ordering::SeqCst)
    }

    async fn connect(&self) -> RedisResult<Way> {
        if self.config.is_encrypted() {
            tls::choose_provider();
        }
        match &self.maker {
            Maker::Server(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(self.config.connect_timeout))
                    .set_response_timeout(Some(self.config.timeout))
                    .set_pipeline_buffer_size(MOST_QUEUED);
                let mut line = client.get_multiplexed_async_connection_with_config(&config).await?;
                // A server that wants a password says so only now, and answers a long command with a riddle.
                redis::cmd("PING").exec_async(&mut line).await?;
                Ok(Way::Server(line))
            }
            Maker::Cluster(client) => client.get_async_connection().await.map(Way::Cluster),
        }
    }
}

fn server(config: &RedisConfig) -> Result<Client, ConfigProblem> {
    let info = nodes(config)?.remove(0);
    match certificates(config)? {
        Some(certificates) => Client::build_with_tls(info, certificates).map_err(unusable),
        None => Client::open(info).map_err(unusable),
    }
}

fn cluster(config: &RedisConfig) -> Result<ClusterClient, ConfigProblem> {
    let mut builder = ClusterClient::builder(nodes(config)?)
        .retries(0)
        .max_connection_attempts(NonZeroUsize::MIN)
        .connection_timeout(config.connect_timeout)
        .response_timeout(config.timeout);
    if let Some(certificates) = certificates(config)? {
        builder = builder.certs(certificates);
    }
    builder.build().map_err(unusable)
}

/// The addresses with the credentials.
fn nodes(config: &RedisConfig) -> Result<Vec<ConnectionInfo>, ConfigProblem> {
    let node = |(at, url): (usize, &String)| {
        let wrong = |_| ConfigProblem::new(format!("urls[{at}]"), "it is no address of Redis");
        let info = url.as_str().into_connection_info().map_err(wrong)?;
        let mut redis = info.redis_settings().clone();
        if let Some(username) = &config.username {
            redis = redis.set_username(username);
        }
        if let Some(password) = &config.password {
            redis = redis.set_password(password.expose());
        }
        Ok(info.set_redis_settings(redis))
    };
    config.urls.iter().enumerate().map(node).collect()
}

fn certificates(config: &RedisConfig) -> Result<Option<TlsCertificates>, ConfigProblem> {
    let root_cert = config.tls.authorities()?;
    let client_tls =
        config.tls.identity()?.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let given = root_cert.is_some() || client_tls.is_some();
    Ok(given.then_some(TlsCertificates { client_tls, root_cert }))
}

fn unusable(_: RedisError) -> ConfigProblem {
    ConfigProblem::new("tls", "the connection cannot be set up with these files; are they PEM?")
}
