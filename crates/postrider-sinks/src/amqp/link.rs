//! The connection to the broker, and channels on it.
//!
//! There is one connection for all routes. It is made when it is first needed and again when it was lost, by whoever
//! comes next, but not before a pause that grows with each failure; until then everybody gets the last error at once. A
//! channel belongs to one call at a time: it is leased, and only given back when everything on it was answered.
//!
//! A channel whose call ended early, because its time was up or nobody waits for it any more, is closed when the rest was
//! answered. Not before: the library sends the end of a channel before the messages that it has not written yet, and a
//! message on a closed channel makes the broker close the connection, with everybody else's messages on it.
//!
//! A call that got no answer at all says little of the connection: its queue may be ill. So the connection is only
//! doubted, and the next call asks for a new channel, which a broker that is there opens at once.
//!
//! The client library has a thread of its own for each connection, which ends with its socket. So we keep a handle of
//! the socket: a connection that we give up, in whatever state, leaves no thread behind. On that thread nothing is
//! logged: the library would write returned messages and frames there, payload and password included.

use std::cell::RefCell;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::FutureExt;
use futures::future::BoxFuture;
use lapin::options::{ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::tcp::{AsyncTcpStream, OwnedIdentity, OwnedTLSConfig};
use lapin::types::FieldTable;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use tokio::time::{Instant, timeout};
use tracing::dispatcher::{DefaultGuard, Dispatch, set_default};

use super::config::{Address, AmqpConfig};
use super::outcome::{Unsent, not_connected, not_opened};
use crate::problem::ConfigProblem;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// How long a connection that is not needed any more may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// The connection of a sink, whether it is there or not.
pub(super) struct Links {
    name: String,
    config: AmqpConfig,
    addresses: Vec<Address>,
    tls: OwnedTLSConfig,
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Since the last failure: the pauses to come, the end of this one, and what went wrong.
    failed: Option<(ExponentialBackoff, Instant, String)>,
    /// How many connections were tried.
    tries: usize,
}

/// One connection.
pub(super) struct Link {
    connection: Connection,
    idle: Mutex<Vec<Channel>>,
    most_idle: usize,
    /// Whether some call got no answer at all.
    doubted: AtomicBool,
    socket: Socket,
}

/// A channel for one call.
pub(super) struct Leased {
    pub(super) link: Arc<Link>,
    pub(super) channel: Channel,
    /// How long the confirms are waited for that the call did not wait for.
    patience: Duration,
    unanswered: Option<BoxFuture<'static, ()>>,
    given_back: bool,
}

impl Links {
    pub(super) fn new(name: &str, config: &AmqpConfig) -> Result<Self, ConfigProblem> {
        let text = |field: &str, bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|_| ConfigProblem::new(field, "it is not in PEM"))
        };
        let authorities = config.tls.authorities()?.map(|bytes| text("tls.ca_file", bytes)).transpose()?;
        let identity = config.tls.identity()?.map(|(pem, key)| OwnedIdentity::PKCS8 { pem, key });
        Ok(Self {
            name: name.to_owned(),
            addresses: config.parsed_addresses()?,
            tls: OwnedTLSConfig { identity, cert_chain: authorities },
            config: config.clone(),
            state: tokio::sync::Mutex::default(),
        })
    }

    /// A channel that nobody else uses: one that was given back, or a new one.
    pub(super) async fn lease(&self) -> Result<Leased, Unsent> {
        let link = self.link().await?;
        if link.doubted.load(Ordering::Relaxed) {
            return self.open_on_doubted(link).await;
        }
        let idle = link.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle.filter(|channel| channel.status().connected()) {
            Some(channel) => Ok(self.leased(link, channel)),
            None => self.open(link).await,
        }
    }

    /// A new channel, on this connection if it still answers, or else on another one.
    async fn open_on_doubted(&self, link: Arc<Link>) -> Result<Leased, Unsent> {
        if let Ok(opened) = timeout(self.config.connect_timeout, self.open(link.clone())).await {
            link.doubted.store(opened.is_err(), Ordering::Relaxed);
            return opened;
        }
        if link.is_blocked() {
            return Err(Unsent::Blocked);
        }
        self.give_up(&mut *self.state.lock().await, &link);
        drop(link);
        self.open(self.link().await?).await
    }

    fn leased(&self, link: Arc<Link>, channel: Channel) -> Leased {
        Leased { link, channel, patience: self.config.timeout, unanswered: None, given_back: false }
    }

    /// A new channel, for which the broker had to answer.
    pub(super) async fn open_new(&self) -> Result<Leased, Unsent> {
        let link = self.link().await?;
        self.open(link).await
    }

    async fn open(&self, link: Arc<Link>) -> Result<Leased, Unsent> {
        let opened = async {
            let channel = link.connection.create_channel().await?;
            if !self.config.exchange.is_empty() {
                // It is only looked for: what is missing is noticed before anything is sent.
                let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
                let name = self.config.exchange.as_str().into();
                channel.exchange_declare(name, ExchangeKind::Direct, options, FieldTable::default()).await?;
            }
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        };
        match opened.await {
            Ok(channel) => Ok(self.leased(link, channel)),
            Err(error) => Err(Unsent::Down(not_opened(&error))),
        }
    }

    /// The connection is not to be used any more, if it is still this one.
    fn give_up(&self, state: &mut State, link: &Arc<Link>) {
        if state.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            tracing::warn!(sink = %self.name, "the broker does not answer; the connection is given up");
            state.link = None;
        }
    }

    /// The same, whichever it is: it did not answer in time, unless it is blocked. There is no time left to wait for who
    /// makes another one just now.
    pub(super) fn give_up_silent(&self) -> Option<Unsent> {
        let mut state = self.state.try_lock().ok()?;
        let link = state.link.clone()?;
        if link.is_blocked() {
            return Some(Unsent::Blocked);
        }
        self.give_up(&mut state, &link);
        None
    }

    async fn link(&self) -> Result<Arc<Link>, Unsent> {
        let mut state = self.state.lock().await;
        if let Some(link) = &state.link {
            match link.connection.status().connected() {
                true if link.is_blocked() => return Err(Unsent::Blocked),
                true => return Ok(link.clone()),
                false => tracing::warn!(sink = %self.name, "the connection to the broker is lost"),
            }
            state.link = None;
        }
        if let Some((_, until, why)) = &state.failed
            && Instant::now() < *until
        {
            return Err(Unsent::Down(why.clone()));
        }
        let address = &self.addresses[state.tries % self.addresses.len()];
        state.tries += 1;
        match self.connect(address).await {
            Ok(link) => {
                metrics::counter!("postrider_amqp_connections_total", "sink" => self.name.clone()).increment(1);
                tracing::info!(sink = %self.name, "connected to the broker");
                let link = Arc::new(link);
                (state.link, state.failed) = (Some(link.clone()), None);
                Ok(link)
            }
            Err(why) => {
                let mut pauses = match state.failed.take() {
                    Some((pauses, ..)) => pauses,
                    None => {
                        tracing::warn!(sink = %self.name, why, "no connection to the broker");
                        pauses()
                    }
                };
                let until = Instant::now() + pauses.next().unwrap_or(LONGEST_PAUSE);
                state.failed = Some((pauses, until, why.clone()));
                Err(Unsent::Down(why))
            }
        }
    }

    async fn connect(&self, address: &Address) -> Result<Link, String> {
        let uri = AMQPUri {
            scheme: if address.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: self.config.user.clone(),
                    password: self.config.password.expose().to_owned(),
                },
                host: address.host.clone(),
                port: address.port,
            },
            vhost: self.config.vhost.clone(),
            query: AMQPQueryString {
                heartbeat: u16::try_from(self.config.heartbeat.as_secs()).ok(),
                ..AMQPQueryString::default()
            },
        };
        let attempt = Attempt(Some(Socket::default()));
        let (kept, tls, limit) = (attempt.socket(), self.tls.clone(), self.config.connect_timeout);
        let (encrypted, host, port) = (address.tls, address.host.clone(), address.port);
        let properties = ConnectionProperties::default()
            .with_connection_name(format!("postrider {}", self.name).into())
            .with_client_property("product".into(), "postrider".into());
        let runtime = lapin::runtime::default_runtime().map_err(|error| not_connected(&error))?;
        let connected = timeout(
            limit,
            Connection::connector(
                uri,
                runtime,
                async move |_, runtime| {
                    be_quiet();
                    let dialled = async {
                        let mut last = io::Error::from(io::ErrorKind::NotFound);
                        for address in tokio::net::lookup_host((host.as_str(), port)).await? {
                            match AsyncTcpStream::connect(&runtime, address).await {
                                Ok(AsyncTcpStream::Plain(stream)) => {
                                    kept.keep(stream.get_ref().as_fd().try_clone_to_owned()?.into());
                                    let stream = AsyncTcpStream::Plain(stream);
                                    return match encrypted {
                                        true => stream.into_tls(&host, tls.as_ref()).await,
                                        false => Ok(stream),
                                    };
                                }
                                Ok(_) => {}
                                Err(error) => last = error,
                            }
                        }
                        Err(last)
                    };
                    let dialled = timeout(limit, dialled).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                    dialled.map_err(lapin::Error::from)
                },
                properties,
            ),
        )
        .await;
        let connection = match connected {
            Ok(connected) => connected.map_err(|error| not_connected(&error))?,
            Err(_) => return Err("no connection within connect_timeout".into()),
        };
        Ok(Link {
            connection,
            idle: Mutex::default(),
            most_idle: self.config.channels,
            doubted: AtomicBool::new(false),
            socket: attempt.succeed(),
        })
    }
}

impl Link {
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// Some call got no answer at all.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// The most bytes of a frame.
    pub(super) fn frame_max(&self) -> usize {
        match self.connection.configuration().frame_max() {
            0 => usize::MAX,
            most => most as usize,
        }
    }
}

impl Leased {
    /// Everything on the channel was answered, so that the next call may have it.
    pub(super) fn give_back(mut self) {
        self.given_back = true;
        let mut idle = self.link.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if self.channel.status().connected() && idle.len() < self.link.most_idle {
            idle.push(self.channel.clone());
        }
    }

    /// The library gives out the confirms of many messages one by one, under a lock that this takes: after it, none of
    /// them is half given out.
    pub(super) fn settle(&mut self) {
        if self.unanswered.is_none() {
            let mut unanswered = all_confirmed(self.channel.clone());
            self.unanswered = (&mut unanswered).now_or_never().is_none().then_some(unanswered);
        }
        let _ = self.channel.wait_for_confirms().now_or_never();
    }
}

/// See the module: the channel is closed when the rest was answered.
impl Drop for Leased {
    fn drop(&mut self) {
        if self.given_back || !self.channel.status().connected() {
            return;
        }
        let (unanswered, patience) = (self.unanswered.take(), self.patience);
        let unanswered = unanswered.unwrap_or_else(|| all_confirmed(self.channel.clone()));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(timeout(patience, unanswered).await) });
        }
    }
}

/// Holds the channel until its last message is confirmed.
fn all_confirmed(channel: Channel) -> BoxFuture<'static, ()> {
    async move { drop(channel.wait_for_confirms().await) }.boxed()
}

/// Without a seed of our own the jitter would be the same in every process: the library has no chance without its feature
/// `std`.
fn pauses() -> ExponentialBackoff {
    let builder = ExponentialBuilder::new().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE);
    builder.with_jitter().with_jitter_seed(fastrand::u64(..)).without_max_times().build()
}

/// A handle of the socket, once there is one.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Option<TcpStream>>>);

impl Socket {
    fn keep(&self, stream: TcpStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    fn close(&self) {
        if let Some(stream) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Closes the socket unless the attempt to connect succeeds, also when nobody waits for it any more.
struct Attempt(Option<Socket>);

impl Attempt {
    fn socket(&self) -> Socket {
        self.0.clone().unwrap_or_default()
    }

    fn succeed(mut self) -> Socket {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            socket.close();
        }
    }
}

/// Dropping the connection says goodbye; the thread behind it ends with the socket.
impl Drop for Link {
    fn drop(&mut self) {
        let socket = self.socket.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.connection.status().connected() => {
                runtime.spawn(async move {
                    tokio::time::sleep(GOODBYE).await;
                    socket.close();
                });
            }
            _ => socket.close(),
        }
    }
}

thread_local! {
    static QUIET: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// From now on nothing is logged on this thread.
fn be_quiet() {
    QUIET.set(Some(set_default(&Dispatch::none())));
}
