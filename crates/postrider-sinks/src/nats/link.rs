//! One connection, and getting a new one.
//!
//! The client library keeps what it is given while it is disconnected, and sends it when it is connected again, be it
//! minutes later. A message that was reported as not sent would arrive then, in the wrong order. So a [`Link`] is one
//! connection and never another: when it breaks, the library is led to an address where nobody is, gives up, and drops
//! what waited. [`Links`] holds the one that is in use and makes the next.
//!
//! A connection that stands still is found by the library's pings within about `timeout`.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{Client, ConnectOptions, Event, ReconnectToServer, ServerAddr, ServerError};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::config::NatsConfig;
use super::outcome::no_connection;
use crate::problem::ConfigProblem;
use crate::tls;

/// The most messages that wait for an acknowledgement on one connection.
const MOST_IN_FLIGHT: usize = 10_000;

/// The most messages that wait to be written.
const MOST_QUEUED: usize = 1_024;

/// Where nobody is: port 0 takes no connections, and the attempt never leaves the machine.
const NOWHERE: &str = "nats://127.0.0.1:0";

/// After so many refusals a connection is replaced: the library remembers each message that got no answer.
const MOST_REFUSALS: usize = 4_096;

/// What the server said that we may not do.
#[derive(Default)]
struct Refused {
    /// When it last said so of publishing on a subject.
    publish: HashMap<String, Instant>,
    /// How often.
    count: usize,
    /// Whether it said so of the subscription to our inbox, where acknowledgements come.
    inbox: bool,
}

/// What the server refuses on one connection. It says so without an answer to the message.
pub(super) struct Refusals(watch::Receiver<Refused>);

impl Refusals {
    /// Whether a message was refused that was sent on this subject at this time.
    pub(super) fn tell_of(&self, subject: &str, sent: Instant) -> bool {
        self.0.borrow().publish.get(subject).is_some_and(|at| *at >= sent)
    }

    /// Whether acknowledgements cannot come.
    pub(super) fn are_of_the_inbox(&self) -> bool {
        self.0.borrow().inbox
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// One connection. Clones are the same connection; it is closed with the last.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) context: Context,
    refused: watch::Sender<Refused>,
    client: Client,
    number: u64,
}

impl Link {
    /// Whether it can be used, as far as is known.
    fn is_up(&self) -> bool {
        let refused = self.refused.borrow();
        let is_sound = !refused.inbox && refused.count < MOST_REFUSALS;
        is_sound && self.client.connection_state() == State::Connected
    }

    /// What the server refuses on it.
    pub(super) fn refusals(&self) -> Refusals {
        Refusals(self.refused.subscribe())
    }
}

/// The connection in use, if there is one, and how to make the next.
pub(super) struct Links {
    name: String,
    config: NatsConfig,
    servers: Vec<ServerAddr>,
    slot: Mutex<Slot>,
    /// The number of the last connection that is not to be used again.
    retired: AtomicU64,
}

#[derive(Default)]
struct Slot {
    link: Option<Link>,
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
    pub(super) fn new(name: String, config: &NatsConfig) -> Result<Self, ConfigProblem> {
        let parse = |(at, server): (usize, &String)| {
            server.parse().map_err(|_| ConfigProblem::new(format!("servers[{at}]"), "it is no address"))
        };
        let servers = config.servers.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        // What is wrong with files and keys is said at the start and not at the first message.
        config.tls.authorities()?;
        config.tls.identity()?;
        options(config)?;
        Ok(Self { name, config: config.clone(), servers, slot: Mutex::default(), retired: AtomicU64::new(0) })
    }

    /// The connection in use, or a new one; the error says why there is none.
    pub(super) async fn link(&self, deadline: Instant) -> Result<Link, String> {
        let asked = Instant::now();
        let slow = |_| "no connection within connect_timeout".to_owned();
        let mut slot = timeout_at(deadline, self.slot.lock()).await.map_err(slow)?;
        if let Some(link) = slot.link.as_ref().filter(|link| link.is_up() && !self.is_retired(link)) {
            return Ok(link.clone());
        }
        if let Some((_, why)) = slot.failure.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(why.clone());
        }
        slot.link = None;
        slot.made += 1;
        let number = slot.made;
        let limit = deadline.min(Instant::now() + self.config.connect_timeout);
        match timeout_at(limit, self.connect(number)).await.map_err(slow).and_then(|made| made) {
            Ok(link) => {
                tracing::info!(sink = %self.name, "connected to NATS");
                slot.failure = None;
                slot.link = Some(link.clone());
                Ok(link)
            }
            Err(why) => {
                if slot.failure.is_none() {
                    tracing::warn!(sink = %self.name, why, "no connection to NATS");
                }
                slot.failure = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// A connection that does not answer is not used again.
    pub(super) fn retire(&self, link: &Link) {
        if self.retired.fetch_max(link.number, Ordering::SeqCst) < link.number {
            tracing::warn!(sink = %self.name, "NATS does not answer; the connection is replaced");
        }
        // Who holds the slot is about to replace it or will see the number; nobody waits for that at a deadline.
        if let Ok(mut slot) = self.slot.try_lock() {
            slot.link.take_if(|used| used.number <= link.number);
        }
    }

    fn is_retired(&self, link: &Link) -> bool {
        link.number <= self.retired.load(Ordering::SeqCst)
    }

    /// Tries all servers, in an order of chance so that relays spread over them.
    async fn connect(&self, number: u64) -> Result<Link, String> {
        let mut servers = self.servers.clone();
        fastrand::shuffle(&mut servers);
        let patience = self.config.connect_timeout / u32::try_from(servers.len()).unwrap_or(1);
        let mut why = "there are no servers".to_owned();
        for server in servers {
            match self.connect_to(server, patience, number).await {
                Ok(link) => return Ok(link),
                Err(what) => why = what,
            }
        }
        Err(why)
    }

    async fn connect_to(&self, server: ServerAddr, patience: Duration, number: u64) -> Result<Link, String> {
        let nowhere: ServerAddr = NOWHERE.parse().map_err(|_| "the address of nobody is wrong")?;
        let refused = watch::Sender::new(Refused::default());
        let pool = [server.clone(), nowhere.clone()];
        let first = AtomicBool::new(true);
        let options = options(&self.config).map_err(|problem| problem.to_string())?;
        // The server may ask for TLS even if the address does not.
        tls::choose_provider();
        let options = options
            .name("postrider")
            .connection_timeout(patience)
            .request_timeout(Some(self.config.connect_timeout))
            .ping_interval(self.config.timeout / 4)
            .client_capacity(MOST_QUEUED)
            .ignore_discovered_servers()
            .max_reconnects(1)
            .reconnect_to_server_callback(move |_, _| {
                let addr = if first.swap(false, Ordering::SeqCst) { server.clone() } else { nowhere.clone() };
                async move { Some(ReconnectToServer { addr, delay: Some(Duration::ZERO) }) }
            })
            .event_callback(on_event(self.name.clone(), refused.clone()));
        let client = match timeout(patience, options.connect(pool.as_slice())).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(no_connection(&error)),
            Err(_) => return Err("no connection within connect_timeout".into()),
        };
        let context = ContextBuilder::new().timeout(self.config.timeout).max_ack_inflight(MOST_IN_FLIGHT);
        Ok(Link { context: context.build(client.clone()), refused, client, number })
    }
}

/// Without addresses and limits; the error says which credentials cannot be read.
fn options(config: &NatsConfig) -> Result<ConnectOptions, ConfigProblem> {
    let mut options = ConnectOptions::new().require_tls(config.must_encrypt());
    if let (Some(user), Some(password)) = (&config.user, &config.password) {
        options = options.user_and_password(user.clone(), password.expose().to_owned());
    }
    if let Some(token) = &config.token {
        options = options.token(token.expose().to_owned());
    }
    if let Some(seed) = &config.nkey_seed {
        options = options.nkey(seed.expose().trim().to_owned());
    }
    if let Some(credentials) = &config.credentials {
        let wrong = |_| ConfigProblem::new("credentials", "this is no text of a .creds file");
        options = options.credentials(credentials.expose()).map_err(wrong)?;
    }
    if let Some(file) = &config.tls.ca_file {
        options = options.add_root_certificates(file.clone());
    }
    if let (Some(certificate), Some(key)) = (&config.tls.certificate_file, &config.tls.key_file) {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options)
}

/// Notes refusals and tells of a lost connection.
fn on_event(name: String, refused: watch::Sender<Refused>) -> impl Fn(Event) -> std::future::Ready<()> {
    move |event| {
        match event {
            Event::Disconnected => tracing::warn!(sink = %name, "the connection to NATS is lost"),
            Event::ServerError(ServerError::Other(text)) => match refusal(&text) {
                Some(Refusal::Publish(subject)) => refused.send_modify(|refused| {
                    refused.count += 1;
                    refused.publish.insert(subject.to_owned(), Instant::now());
                }),
                Some(Refusal::Inbox) => refused.send_modify(|refused| refused.inbox = true),
                None => {}
            },
            _ => {}
        }
        std::future::ready(())
    }
}

/// What the server refused.
#[derive(Debug, PartialEq, Eq)]
enum Refusal<'a> {
    /// Publishing on a subject.
    Publish(&'a str),
    /// Listening where acknowledgements come.
    Inbox,
}

/// Reads a text like `Permissions Violation for Publish to "orders.placed"`. A subject may have quotation marks in it.
fn refusal(text: &str) -> Option<Refusal<'_>> {
    let (what, rest) = text.split_once('"')?;
    let (subject, _) = rest.rsplit_once('"')?;
    match what.trim_end().to_ascii_lowercase().as_str() {
        "permissions violation for publish to" => Some(Refusal::Publish(subject)),
        "permissions violation for subscription to" => Some(Refusal::Inbox),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_refuses_is_read_from_its_text() {
        let publish = "Permissions Violation for Publish to";
        assert_eq!(refusal(&format!("{publish} \"a.b\"")), Some(Refusal::Publish("a.b")));
        assert_eq!(refusal(&format!("{publish} \"a.\"q\".b\"")), Some(Refusal::Publish("a.\"q\".b")));
        let inbox = r#"permissions violation for subscription to "_INBOX.x.*""#;
        assert_eq!(refusal(inbox), Some(Refusal::Inbox));
        for other in ["stale connection", "Permissions Violation for Publish to", r#"maximum of "x" "y""#] {
            assert_eq!(refusal(other), None, "{other}");
        }
    }
}
