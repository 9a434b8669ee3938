//! A relay before a broker, which reads the frames that pass.
//!
//! Kafka's brokers tell their clients where to connect to; the relay puts its own port there, so that clients stay with it.
//! It can lose answers while requests go on to arrive, and it can ask for a user and password by SASL PLAIN, which the mock
//! cluster cannot. A connection that has lost answers is closed when the silence ends: what comes after a gap is no use.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

const LARGEST_FRAME: usize = 128 * 1024 * 1024;
const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SASL_AUTHENTICATE: i16 = 36;
const SASL_FAILED: i16 = 58;

/// A user and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
}

/// A running relay before one broker. Dropping it closes all its connections.
pub struct Relay {
    port: u16,
    link: Arc<Link>,
    _stop: DropGuard,
}

struct Link {
    upstream: SocketAddr,
    /// The port that clients are told.
    advertised: u16,
    credentials: Option<Credentials>,
    silent: watch::Sender<bool>,
    requests: Mutex<HashMap<i16, usize>>,
}

impl Relay {
    /// A relay that clients connect to.
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        Self::before(upstream, None, None).await
    }

    /// A relay that may be behind another port, which clients are told then, and that may ask for credentials.
    pub async fn before(upstream: SocketAddr, port: Option<u16>, credentials: Option<Credentials>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on loopback")?;
        let own = listener.local_addr()?.port();
        let link = Arc::new(Link {
            upstream,
            advertised: port.unwrap_or(own),
            credentials,
            silent: watch::Sender::new(false),
            requests: Mutex::default(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, link.clone(), stop.clone())));
        Ok(Self { port: own, link, _stop: stop.drop_guard() })
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether answers get lost.
    pub fn silence(&self, silent: bool) {
        self.link.silent.send_replace(silent);
    }

    /// How many requests of a kind came.
    pub fn requests(&self, kind: i16) -> usize {
        let requests = self.link.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.get(&kind).copied().unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, link: Arc<Link>, stop: CancellationToken) {
    while let Ok((client, _)) = listener.accept().await {
        let (link, stop) = (link.clone(), stop.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            if let Ok(upstream) = TcpStream::connect(link.upstream).await {
                let (from_client, to_client) = client.into_split();
                let (from_broker, to_broker) = upstream.into_split();
                let (own, answers) = mpsc::unbounded_channel();
                // The end of one direction is the end of both.
                tokio::select! {
                    _ = requests(from_client, to_broker, &link, own) => {}
                    _ = replies(from_broker, to_client, &link, answers) => {}
                }
            }
        }));
    }
}

async fn frame(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let size = usize::try_from(from.read_i32().await?).ok().filter(|size| *size <= LARGEST_FRAME);
    let mut bytes = vec![0; size.ok_or(io::ErrorKind::InvalidData)?];
    from.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn pass(bytes: &[u8], to: &mut OwnedWriteHalf) -> io::Result<()> {
    to.write_i32(i32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidData)?).await?;
    to.write_all(bytes).await
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    link: &Link,
    own: mpsc::UnboundedSender<Vec<u8>>,
) -> io::Result<()> {
    let mut known = link.credentials.is_none();
    loop {
        let request = frame(&mut from).await?;
        let (Some(kind), Some(correlation)) = (number(&request, 0), request.get(4..8)) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        *link.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
        let answer = match (kind, &link.credentials) {
            (SASL_HANDSHAKE, Some(_)) => [correlation, &[0, 0, 0, 0, 0, 1, 0, 5], b"PLAIN"].concat(),
            (SASL_AUTHENTICATE, Some(wanted)) => {
                let plain = format!("\0{}\0{}", wanted.username, wanted.password);
                known = request.windows(plain.len()).any(|part| part == plain.as_bytes());
                let code = if known { 0 } else { SASL_FAILED };
                // A broker may put anything into its message, also what nobody should see; no further bytes, and a session
                // without an end.
                let text = if known { String::new() } else { format!("no, it is {}", wanted.password) };
                let length = i16::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidData)?;
                let end = [&length.to_be_bytes()[..], text.as_bytes(), &[0; 4]].concat();
                let life: &[u8] = if number(&request, 2) == Some(0) { &[] } else { &[0; 8] };
                [correlation, &code.to_be_bytes(), &end, life].concat()
            }
            _ if known || kind == API_VERSIONS => {
                pass(&request, &mut to).await?;
                continue;
            }
            _ => return Err(io::ErrorKind::PermissionDenied.into()),
        };
        own.send(answer).map_err(|_| io::ErrorKind::BrokenPipe)?;
    }
}

fn number(bytes: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    link: &Link,
    mut own: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    let mut silent = link.silent.subscribe();
    let (mut lost, mut first) = (false, true);
    let (frames, mut answers) = mpsc::unbounded_channel();
    let read = async {
        while let Ok(frame) = frame(&mut from).await {
            let _ = frames.send(frame);
        }
    };
    let write = async {
        loop {
            let answer = tokio::select! {
                Some(answer) = answers.recv() => link.changed(answer, &mut first),
                Some(answer) = own.recv() => answer,
                _ = silent.changed() => match lost && !*silent.borrow() {
                    true => return Ok(()),
                    false => continue,
                },
            };
            let losing = *silent.borrow();
            match losing {
                true => lost = true,
                false => pass(&answer, &mut to).await?,
            }
        }
    };
    tokio::select! {
        () = read => Ok(()),
        written = write => written,
    }
}

impl Link {
    /// An answer with the advertised port in it. The first good one on a connection is that of the versions of the API,
    /// to which SASL is added if it is asked for.
    fn changed(&self, mut answer: Vec<u8>, first: &mut bool) -> Vec<u8> {
        let host = b"127.0.0.1";
        let told = |port: u16| [&host[..], &[0, 0], &port.to_be_bytes()].concat();
        let (upstream, advertised) = (told(self.upstream.port()), told(self.advertised));
        for at in 0..answer.len().saturating_sub(upstream.len() - 1) {
            if answer[at..].starts_with(&upstream) {
                answer[at..at + advertised.len()].copy_from_slice(&advertised);
            }
        }
        // Correlation, no error, the number of kinds in four bytes, and six bytes for each.
        if *first && self.credentials.is_some() && number(&answer, 4) == Some(0) {
            *first = false;
            let kinds = [[0, 17, 0, 0, 0, 1], [0, 36, 0, 0, 0, 1]].concat();
            answer[9] += 2;
            answer.splice(10..10, kinds);
        }
        answer
    }
}
