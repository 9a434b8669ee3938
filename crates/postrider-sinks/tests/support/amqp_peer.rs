//! The broker's side of AMQP 0.9.1, played by a test: it answers what every client asks, and leaves what becomes of
//! publishes to the test. For answers that a real broker gives only by chance, or when it is ill.
#![allow(dead_code)] // each test uses a part of it

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const END: u8 = 0xce;
const FRAME_MAX: u32 = 131_072;

/// One connection, after the login.
pub struct Peer {
    stream: TcpStream,
    open: HashSet<u16>,
    closing: HashSet<u16>,
    tags: HashMap<u16, u64>,
    /// How many channels are open.
    told: Arc<AtomicUsize>,
}

/// A message that the client published.
#[derive(Debug, Clone)]
pub struct Published {
    pub channel: u16,
    pub tag: u64,
    header: Vec<u8>,
    pub body: Vec<u8>,
}

struct Frame {
    kind: u8,
    channel: u16,
    payload: Vec<u8>,
}

impl Frame {
    fn method(&self) -> (u16, u16) {
        let number = |at: usize| u16::from_be_bytes([self.payload[at], self.payload[at + 1]]);
        (number(0), number(2))
    }
}

fn method(class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    [&class.to_be_bytes(), &method.to_be_bytes(), arguments].concat()
}

fn short(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    [&[length], text.as_bytes()].concat()
}

fn long(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("a text");
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

fn closing(code: u16) -> Vec<u8> {
    [&code.to_be_bytes()[..], &short("canary-reason"), &[0; 4]].concat()
}

impl Peer {
    /// The next client, logged in.
    pub async fn accept(listener: &TcpListener, heartbeat: u16) -> io::Result<Self> {
        let (stream, _) = listener.accept().await?;
        let (open, closing, tags) = Default::default();
        let mut peer = Self { stream, open, closing, tags, told: Arc::default() };
        peer.stream.read_exact(&mut [0; 8]).await?;
        let start = [&[0, 9, 0, 0, 0, 0][..], &long("PLAIN"), &long("en_US")].concat();
        peer.send(0, &method(10, 10, &start)).await?;
        peer.read().await?;
        let tune = [&2_047_u16.to_be_bytes()[..], &FRAME_MAX.to_be_bytes(), &heartbeat.to_be_bytes()].concat();
        peer.send(0, &method(10, 30, &tune)).await?;
        peer.read().await?;
        peer.read().await?;
        peer.send(0, &method(10, 41, &short(""))).await?;
        Ok(peer)
    }

    /// From now on the number of open channels is told there.
    pub fn tell_open_channels(&mut self, told: Arc<AtomicUsize>) {
        self.told = told;
    }

    /// The next message; whatever else the client asks meanwhile is answered.
    pub async fn published(&mut self) -> io::Result<Published> {
        loop {
            let frame = self.read().await?;
            if frame.kind == METHOD && frame.method() == (20, 41) {
                self.closing.remove(&frame.channel);
            }
            if frame.kind != METHOD || self.closing.contains(&frame.channel) {
                continue;
            }
            let answer = match frame.method() {
                (60, 40) if self.open.contains(&frame.channel) => return self.rest_of(frame.channel).await,
                // As a real broker does: what comes on a closed channel ends the connection.
                (60, 40) => {
                    self.send(0, &method(10, 50, &closing(504))).await?;
                    return Err(io::Error::other("a publish on a channel that is not open"));
                }
                (10, 50) => {
                    self.send(0, &method(10, 51, &[])).await?;
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                (20, 10) => {
                    self.open.insert(frame.channel);
                    self.tags.insert(frame.channel, 0);
                    self.told.store(self.open.len(), Ordering::Relaxed);
                    method(20, 11, &long(""))
                }
                (20, 40) => {
                    self.open.remove(&frame.channel);
                    self.told.store(self.open.len(), Ordering::Relaxed);
                    method(20, 41, &[])
                }
                (40, 10) => method(40, 11, &[]),
                (85, 10) => method(85, 11, &[]),
                _ => continue,
            };
            self.send(frame.channel, &answer).await?;
        }
    }

    /// So many messages.
    pub async fn publisheds(&mut self, count: usize) -> io::Result<Vec<Published>> {
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            all.push(self.published().await?);
        }
        Ok(all)
    }

    async fn rest_of(&mut self, channel: u16) -> io::Result<Published> {
        let header = self.read().await?;
        assert_eq!((header.kind, header.channel), (HEADER, channel));
        let size = u64::from_be_bytes(header.payload[4..12].try_into().expect("eight bytes"));
        let mut body = Vec::new();
        while (body.len() as u64) < size {
            let part = self.read().await?;
            assert_eq!((part.kind, part.channel), (BODY, channel));
            body.extend(part.payload);
        }
        let tag = self.tags.entry(channel).or_default();
        *tag += 1;
        Ok(Published { channel, tag: *tag, header: header.payload, body })
    }

    /// Gives a message back: no queue is there for it.
    pub async fn give_back(&mut self, message: &Published) -> io::Result<()> {
        let arguments = [&312_u16.to_be_bytes()[..], &short("NO_ROUTE"), &short(""), &short("key")].concat();
        self.send(message.channel, &method(60, 50, &arguments)).await?;
        self.write(HEADER, message.channel, &message.header).await?;
        self.write(BODY, message.channel, &message.body).await
    }

    /// Confirms a message, or all up to it.
    pub async fn ack(&mut self, message: &Published, multiple: bool) -> io::Result<()> {
        let arguments = [&message.tag.to_be_bytes()[..], &[u8::from(multiple)]].concat();
        self.send(message.channel, &method(60, 80, &arguments)).await
    }

    /// Refuses a message, or all up to it.
    pub async fn nack(&mut self, message: &Published, multiple: bool) -> io::Result<()> {
        let arguments = [&message.tag.to_be_bytes()[..], &[u8::from(multiple)]].concat();
        self.send(message.channel, &method(60, 120, &arguments)).await
    }

    /// Closes a channel with a code. What the client sends on it before it knows is swallowed.
    pub async fn close_channel(&mut self, channel: u16, code: u16) -> io::Result<()> {
        self.open.remove(&channel);
        self.closing.insert(channel);
        self.send(channel, &method(20, 40, &closing(code))).await
    }

    /// Says that it takes no messages.
    pub async fn block(&mut self) -> io::Result<()> {
        self.send(0, &method(10, 60, &short("low on memory"))).await
    }

    /// Says that it does again.
    pub async fn unblock(&mut self) -> io::Result<()> {
        self.send(0, &method(10, 61, &[])).await
    }

    /// Answers everything and confirms every message, until the client goes.
    pub async fn obey(&mut self) -> io::Result<()> {
        loop {
            let message = self.published().await?;
            self.ack(&message, false).await?;
        }
    }

    async fn send(&mut self, channel: u16, method: &[u8]) -> io::Result<()> {
        self.write(METHOD, channel, method).await
    }

    async fn write(&mut self, kind: u8, channel: u16, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).expect("a frame");
        let frame = [&[kind][..], &channel.to_be_bytes(), &length.to_be_bytes(), payload, &[END]].concat();
        self.stream.write_all(&frame).await
    }

    async fn read(&mut self) -> io::Result<Frame> {
        loop {
            let (kind, channel) = (self.stream.read_u8().await?, self.stream.read_u16().await?);
            let mut payload = vec![0; self.stream.read_u32().await? as usize];
            self.stream.read_exact(&mut payload).await?;
            assert_eq!(self.stream.read_u8().await?, END, "a frame has an end");
            if kind == HEARTBEAT {
                self.write(HEARTBEAT, 0, &[]).await?;
                continue;
            }
            return Ok(Frame { kind, channel, payload });
        }
    }
}
