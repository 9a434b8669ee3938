//! A TCP proxy that breaks connections on command.
//!
//! Promise: the mode can be switched at any time and takes effect on open and new connections. The proxy listens on a
//! free loopback port and lives in tasks of the current runtime; dropping it closes the port and all connections.
//! When the upstream cannot be reached, a client's connection is reset.
//!
//! Bytes that were swallowed are lost, and TCP never delivers what follows a gap: a direction that has lost bytes stays
//! silent for the rest of that connection, also after the mode is [`Mode::Pass`] again. A close is held back for as
//! long as its direction is silent, as a real network would lose it too, and is delivered when the network is back.

mod cut;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use cut::{Cuts, Tail};

const CHUNK: usize = 16 * 1024;

/// What the proxy does to the bytes that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// Every piece of data is held back for this long, in each direction.
    Delay(Duration),
    /// Nothing passes in either direction; connections stay open.
    Blackhole,
    /// All connections are reset (RST), new ones as soon as they are made.
    Reset,
    /// Requests pass, replies of the upstream are swallowed.
    HalfOpen,
}

/// A running proxy in front of one upstream.
pub struct Proxy {
    port: u16,
    link: Arc<Link>,
    _stop: DropGuard,
}

struct Link {
    upstream: SocketAddr,
    mode: watch::Sender<Mode>,
    cuts: Cuts,
    /// Requests whose replies are cut in the middle.
    traps: Cuts,
    halved: AtomicUsize,
    open: AtomicUsize,
    accepted: AtomicUsize,
    harmed: AtomicUsize,
}

/// What both directions of one connection know.
struct Conversation<'a> {
    link: &'a Link,
    is_trapped: AtomicBool,
    is_harmed: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

impl Proxy {
    /// Starts a proxy that passes everything on to `upstream`.
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on loopback")?;
        let port = listener.local_addr()?.port();
        let link = Arc::new(Link::new(upstream));
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, Arc::clone(&link), stop.clone())));
        Ok(Self { port, link, _stop: stop.drop_guard() })
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Switches the mode of open and new connections.
    pub fn set(&self, mode: Mode) {
        self.link.mode.send_replace(mode);
    }

    /// How many connections of clients are open.
    pub fn connections(&self) -> usize {
        self.link.open.load(Ordering::SeqCst)
    }

    /// The next time that `bytes` occur in a reply, the reply is not forwarded and its connection is closed on both
    /// sides. With `b"COMMIT\0"` a client of PostgreSQL does not learn that it has committed.
    pub fn cut_reply_containing(&self, bytes: &[u8]) {
        self.cut_replies_containing(bytes, 1);
    }

    /// Like [`Proxy::cut_reply_containing`], for the next `times` such replies.
    pub fn cut_replies_containing(&self, bytes: &[u8], times: usize) {
        self.link.cuts.arm(bytes, times);
    }

    /// The next `times` that `bytes` occur in a request, the request passes; of the reply to it the first half passes, and then its
    /// connection is closed on both sides. It is for clients that wait for each reply before they ask again.
    pub fn cut_replies_to(&self, bytes: &[u8], times: usize) {
        self.link.traps.arm(bytes, times);
    }

    /// How many replies were cut so far, whole ones and halves.
    pub fn cuts(&self) -> usize {
        self.link.cuts.done() + self.link.halved.load(Ordering::SeqCst)
    }

    /// How many connections were made so far.
    pub fn accepted(&self) -> usize {
        self.link.accepted.load(Ordering::SeqCst)
    }

    /// How many connections have lost bytes or were reset so far.
    pub fn harmed(&self) -> usize {
        self.link.harmed.load(Ordering::SeqCst)
    }
}

impl Link {
    fn new(upstream: SocketAddr) -> Self {
        let (cuts, traps) = (Cuts::default(), Cuts::default());
        let [halved, open, accepted, harmed] = [const { AtomicUsize::new(0) }; 4];
        Self { upstream, mode: watch::Sender::new(Mode::Pass), cuts, traps, halved, open, accepted, harmed }
    }
}

impl Conversation<'_> {
    /// How much of a piece of data is passed on; less than all of it is the last that passes.
    fn kept(&self, direction: Direction, tail: &mut Tail, data: &[u8]) -> usize {
        if direction == Direction::Requests {
            if self.link.traps.hit(tail, data) {
                self.is_trapped.store(true, Ordering::SeqCst);
            }
            return data.len();
        }
        if self.is_trapped.load(Ordering::SeqCst) {
            self.link.halved.fetch_add(1, Ordering::SeqCst);
            return data.len() / 2;
        }
        if self.link.cuts.hit(tail, data) { 0 } else { data.len() }
    }

    /// Counts the connection, once.
    fn harm(&self) {
        if !self.is_harmed.swap(true, Ordering::SeqCst) {
            self.link.harmed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn accept(listener: TcpListener, link: Arc<Link>, stop: CancellationToken) {
    loop {
        // a failed accept is the client's problem (it went away); the next one may work
        if let Ok((client, _)) = listener.accept().await {
            let open = Open::new(Arc::clone(&link));
            tokio::spawn(stop.clone().run_until_cancelled_owned(carry(client, open)));
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// Counts one connection for as long as it lives.
struct Open(Arc<Link>);

impl Open {
    fn new(link: Arc<Link>) -> Self {
        link.open.fetch_add(1, Ordering::SeqCst);
        link.accepted.fetch_add(1, Ordering::SeqCst);
        Self(link)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn carry(mut client: TcpStream, open: Open) {
    let link = &open.0;
    let Ok(mut upstream) = TcpStream::connect(link.upstream).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let conversation = Conversation { link, is_trapped: AtomicBool::new(false), is_harmed: AtomicBool::new(false) };
    let must_reset = tokio::select! {
        () = reset(link) => true,
        _ = both_ways(&mut client, &mut upstream, &conversation) => false,
    };
    if must_reset {
        conversation.harm();
        let _ = (client.set_zero_linger(), upstream.set_zero_linger());
    }
}

async fn reset(link: &Link) {
    // the sender lives as long as the link, so this cannot fail
    let _ = link.mode.subscribe().wait_for(|mode| *mode == Mode::Reset).await;
}

/// Ends when both sides have closed, or at once when one direction fails or is cut.
async fn both_ways(client: &mut TcpStream, upstream: &mut TcpStream, about: &Conversation<'_>) -> io::Result<()> {
    let (from_client, to_client) = client.split();
    let (from_upstream, to_upstream) = upstream.split();
    tokio::try_join!(
        pump(from_client, to_upstream, Direction::Requests, about),
        pump(from_upstream, to_client, Direction::Replies, about),
    )?;
    Ok(())
}

async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    direction: Direction,
    about: &Conversation<'_>,
) -> io::Result<()> {
    let mut mode = about.link.mode.subscribe();
    let mut tail = Tail::default();
    let mut lost = false;
    let mut chunk = vec![0; CHUNK];
    loop {
        // a reset by the peer is held back in a silent direction like any other close
        let count = from.read(&mut chunk).await.unwrap_or(0);
        if count == 0 {
            let _ = mode.wait_for(|mode| !direction.is_silent(*mode)).await;
            return to.shutdown().await;
        }
        lost = lost || !passes(&mut mode, direction).await;
        if lost {
            about.harm();
            continue;
        }
        let kept = about.kept(direction, &mut tail, &chunk[..count]);
        to.write_all(&chunk[..kept]).await?;
        if kept < count {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
}

/// Decides about data that has just arrived, after its delay; a switch of the mode during the delay counts.
async fn passes(mode: &mut watch::Receiver<Mode>, direction: Direction) -> bool {
    let arrived = Instant::now();
    loop {
        let now = *mode.borrow_and_update();
        let Mode::Delay(delay) = now else { return !direction.is_silent(now) };
        tokio::select! {
            () = tokio::time::sleep_until(arrived + delay) => return true,
            Ok(()) = mode.changed() => {}
        }
    }
}

impl Direction {
    fn is_silent(self, mode: Mode) -> bool {
        match mode {
            Mode::Pass | Mode::Delay(_) => false,
            Mode::Blackhole | Mode::Reset => true,
            Mode::HalfOpen => self == Direction::Replies,
        }
    }
}

#[cfg(test)]
mod tests;
