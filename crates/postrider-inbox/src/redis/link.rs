//! The connection to a server or cluster, and getting a new one.
//!
//! A [`Link`] that failed is not used again. Commands may be sent again on the next one, because every script knows by
//! its token what an earlier try has done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult,
    TlsCertificates, Value,
};
use secrecy::ExposeSecret;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::config::RedisInboxBuilder;
use super::outcome::{Kind, Problem};
use crate::InboxError;

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
    /// Sends a command to the server that has its key.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self.way.clone() {
            Way::Server(mut line) => line.req_packed_command(command).await?.extract_error(),
            Way::Cluster(mut line) => line.req_packed_command(command).await?.extract_error(),
        }
    }

    /// Sends a command to every server that takes writes and answers what each said, by its address.
    pub(super) async fn send_to_all(&self, command: Cmd) -> RedisResult<Vec<(String, Value)>> {
        let one = |answer| vec![(String::new(), answer)];
        let Way::Cluster(mut line) = self.way.clone() else { return self.send(&command).await.map(one) };
        let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        match line.route_command(command, all).await? {
            Value::Map(answers) => {
                let each = |(address, answer): (Value, Value)| {
                    Ok((redis::from_redis_value(address)?, answer.extract_error()?))
                };
                answers.into_iter().map(each).collect()
            }
            answer => answer.extract_error().map(one),
        }
    }
}

/// The connection in use, if there is one, and how to make the next.
pub(super) struct Links {
    maker: Maker,
    is_encrypted: bool,
    connect_timeout: Duration,
    response_timeout: Duration,
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
    made: u64,
    /// When and why the last attempt failed; those who waited for it need not try by themselves.
    failure: Option<(Instant, Problem)>,
}

impl Links {
    pub(super) fn new(builder: &RedisInboxBuilder) -> Result<Self, InboxError> {
        let maker = match builder.is_cluster {
            true => Maker::Cluster(Box::new(cluster(builder)?)),
            false => Maker::Server(Box::new(server(builder)?)),
        };
        Ok(Self {
            maker,
            is_encrypted: builder.is_encrypted(),
            connect_timeout: builder.connect_timeout,
            response_timeout: builder.settings.response_timeout,
            slot: Mutex::default(),
            retired: AtomicU64::new(0),
        })
    }

    /// The connection in use, or a new one; the error says why there is none.
    pub(super) async fn link(&self) -> Result<Link, Problem> {
        let asked = Instant::now();
        let slow = |_| Problem::new(Kind::NoConnection, "no connection to Redis within connect_timeout");
        let mut slot = timeout_at(asked + self.connect_timeout, self.slot.lock()).await.map_err(slow)?;
        if let Some(link) = slot.link.as_ref().filter(|link| !self.is_retired(link)) {
            return Ok(link.clone());
        }
        slot.link = None;
        if let Some((_, problem)) = slot.failure.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(problem.clone());
        }
        slot.made += 1;
        let number = slot.made;
        let made = timeout_at(Instant::now() + self.connect_timeout, self.connect()).await.map_err(slow);
        match made.and_then(|made| made.map_err(|error| Problem::of_connecting(&error))) {
            Ok(way) => {
                tracing::info!("connected to Redis");
                slot.failure = None;
                Ok(slot.link.insert(Link { way, number }).clone())
            }
            Err(problem) => {
                if slot.failure.is_none() {
                    tracing::warn!(why = %problem, "no connection to Redis");
                }
                slot.failure = Some((Instant::now(), problem.clone()));
                Err(problem)
            }
        }
    }

    /// A connection that failed is not used again.
    pub(super) fn retire(&self, link: &Link) {
        if self.retired.fetch_max(link.number, Ordering::SeqCst) < link.number {
            tracing::warn!("the connection to Redis is given up");
        }
        // Who holds the slot is about to replace it or will see the number.
        if let Ok(mut slot) = self.slot.try_lock() {
            slot.link.take_if(|used| used.number <= link.number);
        }
    }

    fn is_retired(&self, link: &Link) -> bool {
        link.number <= self.retired.load(Ordering::SeqCst)
    }

    async fn connect(&self) -> RedisResult<Way> {
        if self.is_encrypted {
            choose_provider();
        }
        match &self.maker {
            Maker::Server(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(self.connect_timeout))
                    .set_response_timeout(Some(self.response_timeout));
                let mut line = client.get_multiplexed_async_connection_with_config(&config).await?;
                // A server that wants a password, or is not ready, says so only now.
                redis::cmd("PING").exec_async(&mut line).await?;
                Ok(Way::Server(line))
            }
            Maker::Cluster(client) => client.get_async_connection().await.map(Way::Cluster),
        }
    }
}

fn server(builder: &RedisInboxBuilder) -> Result<Client, InboxError> {
    let info = nodes(builder)?.remove(0);
    match certificates(builder)? {
        Some(certificates) => Client::build_with_tls(info, certificates).map_err(unusable),
        None => Client::open(info).map_err(unusable),
    }
}

fn cluster(builder: &RedisInboxBuilder) -> Result<ClusterClient, InboxError> {
    let mut made = ClusterClient::builder(nodes(builder)?)
        .connection_timeout(builder.connect_timeout)
        .response_timeout(builder.settings.response_timeout);
    if let Some(certificates) = certificates(builder)? {
        made = made.certs(certificates);
    }
    made.build().map_err(unusable)
}

/// The addresses with the credentials.
fn nodes(builder: &RedisInboxBuilder) -> Result<Vec<ConnectionInfo>, InboxError> {
    let node = |url: &secrecy::SecretString| {
        let wrong = |_| InboxError::Config("an address is not one of Redis; write redis://host:port".into());
        let info = url.expose_secret().into_connection_info().map_err(wrong)?;
        let mut redis = info.redis_settings().clone();
        if let Some(username) = &builder.username {
            redis = redis.set_username(username.expose_secret());
        }
        if let Some(password) = &builder.password {
            redis = redis.set_password(password.expose_secret());
        }
        Ok(info.set_redis_settings(redis))
    };
    builder.urls.iter().map(node).collect()
}

fn certificates(builder: &RedisInboxBuilder) -> Result<Option<TlsCertificates>, InboxError> {
    let read = |what: &str, path: &std::path::Path| {
        let failed = |error: std::io::Error| InboxError::Config(format!("{what} cannot be read: {}", error.kind()));
        std::fs::read(path).map_err(failed)
    };
    let root_cert = builder.ca_file.as_deref().map(|path| read("the ca_file", path)).transpose()?;
    let client_tls = match &builder.identity_files {
        Some((certificate, key)) => Some(ClientTlsConfig {
            client_cert: read("the client's certificate", certificate)?,
            client_key: read("the client's key", key)?,
        }),
        None => None,
    };
    let is_given = root_cert.is_some() || client_tls.is_some();
    Ok(is_given.then_some(TlsCertificates { client_tls, root_cert }))
}

fn unusable(_: RedisError) -> InboxError {
    InboxError::Config("the connection to Redis cannot be set up with these certificates; are the files PEM?".into())
}

/// Makes sure that the process has a crypto provider before the library wants it, which would panic without one. What the
/// program chose stays.
fn choose_provider() {
    use rustls::crypto::{CryptoProvider, aws_lc_rs};

    if CryptoProvider::get_default().is_none() {
        // Somebody else may be quicker, which is as good.
        let _chosen = aws_lc_rs::default_provider().install_default();
    }
}
