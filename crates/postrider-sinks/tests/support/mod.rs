//! An HTTP server that does what it is told and keeps what it was sent, byte for byte.
#![allow(dead_code)] // each test uses a part of it

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::{ClaimedMessage, Destination, Lease, Payload, RowAddress};
use postrider_sinks::http::Lookup;
use postrider_sinks::{HttpClient, HttpConfig, HttpSink};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

/// A request as it came over the wire.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub lines: Vec<String>,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

/// What a server does with a request.
pub enum Reply {
    /// Answers, and keeps the connection.
    Bytes(Vec<u8>),
    /// Answers, and closes the connection.
    Close(Vec<u8>),
    /// Answers, and resets the connection.
    Reset(Vec<u8>),
    /// Answers, and goes on with the second part for as long as somebody reads.
    Endless(Vec<u8>, Vec<u8>),
    /// Answers one byte at a time, with a pause after each.
    Drip(Vec<u8>, Duration),
    /// Says nothing.
    Silence,
    /// Answers after a while.
    After(Duration, Vec<u8>),
}

/// An answer with a status and an empty body.
pub fn status(code: u16) -> Reply {
    with_headers(code, "")
}

/// The same with header lines.
pub fn with_headers(code: u16, lines: &str) -> Reply {
    Reply::Bytes(format!("HTTP/1.1 {code} Whatever\r\n{lines}content-length: 0\r\n\r\n").into_bytes())
}

/// A port that no other test gets, also while its server is stopped.
pub const ANYWHERE: &str = "127.0.0.1:0";

type Behaviour = Arc<dyn Fn(&Received) -> Reply + Send + Sync>;

pub struct Server {
    pub address: SocketAddr,
    pub accepted: Arc<AtomicUsize>,
    /// Bytes of endless answers that somebody took.
    pub sent: Arc<AtomicUsize>,
    pub received: Arc<Mutex<Vec<Received>>>,
    stop: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(behave: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(ANYWHERE, None, behave).await
    }

    pub async fn start_at(
        address: &str,
        tls: Option<TlsAcceptor>,
        behave: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = match address {
            ANYWHERE => TcpListener::bind(("127.0.0.1", testkit::free_port().expect("a free port"))).await,
            address => TcpListener::bind(address).await,
        };
        let listener = listener.expect("the port is free");
        let address = listener.local_addr().expect("an address");
        let (accepted, sent, received) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<Mutex<Vec<Received>>>)>::default();
        let behave: Behaviour = Arc::new(behave);
        let (counted, log, bytes) = (accepted.clone(), received.clone(), sent.clone());
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = stopped.notified() => break,
                };
                let Ok((stream, _)) = accepted else { break };
                counted.fetch_add(1, Ordering::Relaxed);
                let (behave, log, bytes, tls) = (behave.clone(), log.clone(), bytes.clone(), tls.clone());
                connections.spawn(async move {
                    let _ = match tls {
                        None => serve(stream, behave, log, bytes).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, behave, log, bytes).await,
                            Err(error) => Err(error),
                        },
                    };
                });
            }
            drop(listener);
            connections.shutdown().await;
        });
        Self { address, accepted, sent, received, stop, task }
    }

    /// Ends it, and returns when it takes nothing any more.
    pub async fn stop(mut self) {
        self.stop.notify_one();
        (&mut self.task).await.expect("it came to its end");
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn accepts(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().expect("not poisoned"))
    }
}

/// Plain and encrypted connections; only a plain one can be reset.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    fn reset(self);
}

impl Stream for TcpStream {
    fn reset(self) {
        let _ = self.set_zero_linger();
    }
}

impl Stream for tokio_rustls::server::TlsStream<TcpStream> {
    fn reset(self) {
        self.into_inner().0.reset();
    }
}

async fn serve(
    mut stream: impl Stream,
    behave: Behaviour,
    log: Arc<Mutex<Vec<Received>>>,
    sent: Arc<AtomicUsize>,
) -> io::Result<()> {
    while let Some(request) = read(&mut stream).await? {
        let reply = behave(&request);
        log.lock().expect("not poisoned").push(request);
        match reply {
            Reply::Bytes(bytes) => stream.write_all(&bytes).await?,
            Reply::Close(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Reply::Reset(bytes) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
                // What was written must arrive before the reset does.
                tokio::time::sleep(Duration::from_millis(30)).await;
                stream.reset();
                return Ok(());
            }
            Reply::Endless(head, more) => {
                stream.write_all(&head).await?;
                loop {
                    stream.write_all(&more).await?;
                    sent.fetch_add(more.len(), Ordering::Relaxed);
                }
            }
            Reply::Drip(bytes, pause) => {
                for byte in bytes {
                    stream.write_all(&[byte]).await?;
                    stream.flush().await?;
                    tokio::time::sleep(pause).await;
                }
            }
            Reply::Silence => std::future::pending().await,
            Reply::After(pause, bytes) => {
                tokio::time::sleep(pause).await;
                stream.write_all(&bytes).await?;
            }
        }
    }
    Ok(())
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Received>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let lines: Vec<String> = head.split("\r\n").map(str::to_owned).collect();
    let pairs = lines[1..].iter().filter_map(|line| line.split_once(": "));
    let headers: HashMap<String, String> =
        pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let length: usize = headers.get("content-length").map_or(0, |text| text.parse().expect("a length"));
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    let path = lines[0].split(' ').nth(1).unwrap_or_default().to_owned();
    Ok(Some(Received { path, lines, headers, body }))
}

/// A message with nothing optional.
pub fn message(namespace: &str, topic: &str, payload: Payload) -> ClaimedMessage {
    let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
    ClaimedMessage::new(lease, namespace.into(), topic.into(), payload)
}

pub fn json(text: &str) -> Payload {
    Payload::Json(text.into())
}

/// A configuration for servers on this machine.
pub fn local() -> HttpConfig {
    let mut config = HttpConfig::default();
    config.allow_addresses = vec!["127.0.0.1".into()];
    config
}

pub fn destination(text: &str) -> Destination {
    text.parse().expect("a destination")
}

pub fn sink(config: &HttpConfig, url: &str) -> HttpSink {
    HttpClient::new(config).expect("a client").sink(destination(url)).expect("a sink")
}

/// Answers look-ups from a table, in which each look-up of a name takes the next answer; the last one stays.
#[derive(Default, Clone)]
pub struct Names {
    answers: Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>,
    pub asked: Arc<AtomicUsize>,
}

impl Names {
    pub fn new(answers: &[(&str, &[&[&str]])]) -> Self {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
        let answers = answers.iter().map(|(name, given)| {
            let mut given: Vec<Vec<IpAddr>> = given.iter().map(|texts| parse(texts)).collect();
            given.reverse();
            ((*name).to_owned(), given)
        });
        Self { answers: Arc::new(Mutex::new(answers.collect())), asked: Arc::default() }
    }
}

#[async_trait]
impl Lookup for Names {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.answers.lock().expect("not poisoned");
        let given = answers.get_mut(host).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let last = given.last().cloned().unwrap_or_default();
        if given.len() > 1 {
            given.pop();
        }
        Ok(last)
    }
}
