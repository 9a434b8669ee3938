//! A fake of Pub/Sub: topics, subscriptions, publish, pull and acknowledge, with its limits and with ordering keys.
//!
//! It keeps what it has while it is stopped. It knows no ack deadline: what was pulled comes only once. The faults are those
//! that the emulator cannot be made to have.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use async_trait::async_trait;
use prost::Message;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Status};

use super::grpc::{Handler, serve};
use super::wire::*;
use crate::port::on_free_port;

/// A running fake. Dropping it ends it.
pub struct Fake {
    port: u16,
    service: Arc<Service>,
    running: Mutex<Option<DropGuard>>,
}

/// A publish request, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The full name of the topic.
    pub topic: String,
    /// The ordering key that all its messages have.
    pub key: String,
    /// The event ids of its messages.
    pub ids: Vec<String>,
    /// Whether it was accepted.
    pub accepted: bool,
}

impl Fake {
    /// Starts a fake on a free port.
    pub async fn start() -> Result<Self> {
        let mut bound = None;
        let port = on_free_port(|port| {
            bound = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?);
            Ok(())
        })?;
        let fake = Self { port, service: Arc::default(), running: Mutex::default() };
        fake.run(bound.context("no port was bound")?)?;
        Ok(fake)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Closes the port and all connections.
    pub fn stop(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Opens the port again.
    pub fn restart(&self) -> Result<()> {
        self.stop();
        self.run(TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).context("the port is taken")?)
    }

    /// The next `times` requests with this ordering key fail with a code; the empty key is that of messages without one.
    pub fn fail(&self, key: &str, code: Code, times: usize) {
        self.service.state().faults.insert(key.to_owned(), (code, times));
    }

    /// Requests with a message that has this attribute are refused as invalid, as by the schema of a topic.
    pub fn refuse_attribute(&self, name: &str) {
        self.service.state().refused = Some(name.to_owned());
    }

    /// Whoever looks at a topic is answered with this code, which is `PermissionDenied`, `Unavailable` or `Ok`.
    pub fn look(&self, code: Code) {
        self.service.state().looks = code;
    }

    /// Publish requests are taken and looked at, but not answered until [`Fake::release`].
    pub fn hold(&self) {
        self.service.held.send_replace(true);
    }

    /// The end of that.
    pub fn release(&self) {
        self.service.held.send_replace(false);
    }

    /// All publish requests so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.service.state().requests.clone()
    }

    /// Serves one connection that was made in another way, for instance with TLS.
    pub async fn serve<T>(&self, connection: T) -> Result<()>
    where
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        serve(connection, self.service.clone()).await
    }

    fn run(&self, listener: TcpListener) -> Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let stop = CancellationToken::new();
        let service = Arc::clone(&self.service);
        let connections = stop.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { continue };
                let _ = connection.set_nodelay(true);
                let service = Arc::clone(&service);
                tokio::spawn(connections.clone().run_until_cancelled_owned(serve(connection, service)));
            }
        }));
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop.drop_guard());
        Ok(())
    }
}

#[derive(Default)]
struct Service {
    state: Mutex<State>,
    held: watch::Sender<bool>,
}

struct State {
    topics: Vec<String>,
    subscriptions: HashMap<String, Queue>,
    faults: HashMap<String, (Code, usize)>,
    refused: Option<String>,
    looks: Code,
    requests: Vec<Request>,
    last_id: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            subscriptions: HashMap::new(),
            faults: HashMap::new(),
            refused: None,
            looks: Code::Ok,
            requests: Vec::new(),
            last_id: 0,
        }
    }
}

#[derive(Default)]
struct Queue {
    topic: String,
    ordered: bool,
    waiting: VecDeque<PubsubMessage>,
    /// What was pulled and not acknowledged yet.
    outstanding: HashMap<String, PubsubMessage>,
}

impl Service {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Handler for Service {
    async fn call(&self, path: &str, request: &[u8]) -> Result<Vec<u8>, Status> {
        let method = path.strip_prefix("/google.pubsub.v1.").unwrap_or_default();
        match method {
            "Publisher/Publish" => {
                let answer = self.state().publish(read(request)?);
                // The sender never goes away before us.
                let _ = self.held.subscribe().wait_for(|held| !held).await;
                Ok(answer?.encode_to_vec())
            }
            "Publisher/CreateTopic" => Ok(self.state().create_topic(read(request)?)?.encode_to_vec()),
            "Publisher/GetTopic" => Ok(self.state().topic(&read::<TopicRequest>(request)?.topic)?.encode_to_vec()),
            "Publisher/DeleteTopic" => {
                let name = read::<TopicRequest>(request)?.topic;
                self.state().topics.retain(|topic| *topic != name);
                Ok(Empty {}.encode_to_vec())
            }
            "Subscriber/CreateSubscription" => Ok(self.state().subscribe(read(request)?)?.encode_to_vec()),
            "Subscriber/Pull" => Ok(self.state().pull(&read(request)?)?.encode_to_vec()),
            "Subscriber/Acknowledge" => {
                let request: AcknowledgeRequest = read(request)?;
                let mut state = self.state();
                let queue = state.queue(&request.subscription)?;
                request.ack_ids.iter().for_each(|id| drop(queue.outstanding.remove(id)));
                Ok(Empty {}.encode_to_vec())
            }
            // Deadlines never run out here, but what is given back comes again at once.
            "Subscriber/ModifyAckDeadline" => {
                let request: ModifyAckDeadlineRequest = read(request)?;
                let mut state = self.state();
                let queue = state.queue(&request.subscription)?;
                if request.ack_deadline_seconds == 0 {
                    let back = request.ack_ids.iter().rev().filter_map(|id| queue.outstanding.remove(id));
                    back.for_each(|message| queue.waiting.push_front(message));
                }
                Ok(Empty {}.encode_to_vec())
            }
            _ => Err(Status::unimplemented("the fake has no such method")),
        }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let name = path.strip_prefix("/v1/").unwrap_or_default();
        let code = self.state().looks;
        match self.state().topic(name) {
            _ if code == Code::PermissionDenied => (403, error(403, "PERMISSION_DENIED")),
            _ if code == Code::Unavailable => (503, error(503, "UNAVAILABLE")),
            Ok(topic) => (200, json!({ "name": topic.name }).to_string()),
            Err(_) => (404, error(404, "NOT_FOUND")),
        }
    }
}

fn error(code: u16, status: &str) -> String {
    json!({ "error": { "code": code, "status": status, "message": "as ordered" } }).to_string()
}

fn read<T: Message + Default>(request: &[u8]) -> Result<T, Status> {
    T::decode(request).map_err(|_| Status::internal("the request cannot be read"))
}

impl State {
    fn topic(&self, name: &str) -> Result<Topic, Status> {
        match self.topics.iter().any(|topic| topic == name) {
            true => Ok(Topic { name: name.to_owned() }),
            false => Err(Status::not_found("topic not found")),
        }
    }

    fn queue(&mut self, name: &str) -> Result<&mut Queue, Status> {
        self.subscriptions.get_mut(name).ok_or_else(|| Status::not_found("subscription not found"))
    }

    fn create_topic(&mut self, topic: Topic) -> Result<Topic, Status> {
        if self.topic(&topic.name).is_ok() {
            return Err(Status::already_exists("topic exists"));
        }
        self.topics.push(topic.name.clone());
        Ok(topic)
    }

    fn subscribe(&mut self, wanted: Subscription) -> Result<Subscription, Status> {
        self.topic(&wanted.topic)?;
        let queue = Queue { topic: wanted.topic.clone(), ordered: wanted.enable_message_ordering, ..Queue::default() };
        match self.subscriptions.contains_key(&wanted.name) {
            true => Err(Status::already_exists("subscription exists")),
            false => {
                self.subscriptions.insert(wanted.name.clone(), queue);
                Ok(wanted)
            }
        }
    }

    fn publish(&mut self, request: PublishRequest) -> Result<PublishResponse, Status> {
        let id = |message: &PubsubMessage| message.attributes.get("event_id").cloned().unwrap_or_default();
        let key = request.messages.first().map(|message| message.ordering_key.clone()).unwrap_or_default();
        let ids = request.messages.iter().map(id).collect();
        let allowed = self.allow(&request, &key);
        self.requests.push(Request { topic: request.topic.clone(), key, ids, accepted: allowed.is_ok() });
        allowed?;
        let mut message_ids = Vec::with_capacity(request.messages.len());
        for mut message in request.messages {
            self.last_id += 1;
            message.message_id = self.last_id.to_string();
            message_ids.push(message.message_id.clone());
            for queue in self.subscriptions.values_mut().filter(|queue| queue.topic == request.topic) {
                queue.waiting.push_back(message.clone());
            }
        }
        Ok(PublishResponse { message_ids })
    }

    fn allow(&mut self, request: &PublishRequest, key: &str) -> Result<(), Status> {
        if let Some((code, times)) = self.faults.get_mut(key).filter(|(_, times)| *times > 0) {
            *times -= 1;
            return Err(Status::new(*code, "as ordered"));
        }
        self.topic(&request.topic)?;
        let refused =
            |message: &PubsubMessage| self.refused.as_ref().is_some_and(|name| message.attributes.contains_key(name));
        let good = |message: &PubsubMessage| is_good(message) && message.ordering_key == key && !refused(message);
        let count = (1..=1_000).contains(&request.messages.len());
        match count && request.encoded_len() <= 10_000_000 && request.messages.iter().all(good) {
            true => Ok(()),
            false => Err(Status::invalid_argument("a message is invalid")),
        }
    }

    fn pull(&mut self, request: &PullRequest) -> Result<PullResponse, Status> {
        let most = usize::try_from(request.max_messages).unwrap_or_default();
        let queue = self.queue(&request.subscription)?;
        let mut received_messages = Vec::new();
        let mut kept = VecDeque::new();
        let keys = queue.outstanding.values().map(|message| message.ordering_key.clone());
        let busy: Vec<String> = keys.filter(|key| !key.is_empty()).collect();
        while let Some(message) = queue.waiting.pop_front() {
            if received_messages.len() >= most || queue.ordered && busy.contains(&message.ordering_key) {
                kept.push_back(message);
                continue;
            }
            queue.outstanding.insert(message.message_id.clone(), message.clone());
            received_messages.push(ReceivedMessage { ack_id: message.message_id.clone(), message: Some(message) });
        }
        queue.waiting = kept;
        Ok(PullResponse { received_messages })
    }
}

/// Whether a message keeps to the limits of the service.
fn is_good(message: &PubsubMessage) -> bool {
    let attribute = |(name, value): (&String, &String)| {
        (1..=256).contains(&name.len()) && !name.starts_with("goog") && value.len() <= 1_024
    };
    let attributes = message.attributes.len() <= 100 && message.attributes.iter().all(attribute);
    let something = !message.data.is_empty() || !message.attributes.is_empty();
    attributes && something && message.ordering_key.len() <= 1_024
}
