//! What all routes share: credentials, a connection with its publishers, and room for requests.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use google_cloud_auth::credentials::{Builder, Credentials, anonymous, service_account};
use google_cloud_gax::retry_policy::{NeverRetry, RetryPolicyExt};
use google_cloud_pubsub::client::{BasePublisher, Publisher, TopicAdmin};
use postrider_core::{Destination, Sink};
use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use super::config::{PubsubConfig, service_account};
use super::outcome::NO_TOKEN;
use super::publishers::Publishers;
use super::sink::PubsubSink;
use crate::format::Form;
use crate::kind::{Binding, SinkClient, SinkConfig};
use crate::problem::ConfigProblem;

/// The most requests under way. Google's client has room for 100 on a connection and lets more wait in a queue of its own,
/// where nobody could tell any more whether they were sent.
const REQUESTS: usize = 64;
/// What goes before the attributes of CloudEvents, by its binding for Pub/Sub.
const CLOUDEVENTS: &str = "ce-";

/// What all routes to a sink share. Clones are the same client.
#[derive(Clone)]
pub struct PubsubClient {
    shared: Arc<Shared>,
}

impl fmt::Debug for PubsubClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PubsubClient").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl PubsubClient {
    /// A client by the name of `pubsub`.
    pub fn new(config: &PubsubConfig) -> Result<Self, ConfigProblem> {
        Self::named("pubsub", config)
    }

    /// A client; the name is the sink's in logs. It connects to nothing yet.
    pub fn named(name: impl Into<String>, config: &PubsubConfig) -> Result<Self, ConfigProblem> {
        if let Some(problem) = config.problems().into_iter().next() {
            return Err(problem);
        }
        let name = name.into();
        let emulator = config.emulator(std::env::var("PUBSUB_EMULATOR_HOST").ok())?;
        if let Some(emulator) = &emulator {
            tracing::warn!(sink = name, emulator, "messages go to an emulator of Pub/Sub, without encryption");
        }
        let access = match (&emulator, &config.credentials) {
            (Some(_), _) => Access::None,
            (None, Some(key)) => Access::ServiceAccount(service_account(key)?),
            (None, None) => Access::Default,
        };
        let shared = Shared {
            endpoint: emulator.map(|host| format!("http://{host}")).or_else(|| config.endpoint.clone()),
            access,
            credentials: OnceCell::new(),
            connection: tokio::sync::Mutex::default(),
            room: Semaphore::new(REQUESTS),
            away: AtomicBool::new(false),
            form: Form::new(config.format, &config.source, CLOUDEVENTS)?,
            config: config.clone(),
            name,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The sink of a route: its destination is a topic, fixed or made of the message.
    pub fn sink(&self, destination: Destination) -> Result<PubsubSink, ConfigProblem> {
        let topics = self.shared.config.topics(&Binding::to(destination))?;
        Ok(PubsubSink::new(self.shared.clone(), topics, self.shared.form.clone()))
    }
}

impl SinkClient for PubsubClient {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        let topics = self.shared.config.topics(&binding)?;
        let format = binding.format.unwrap_or(self.shared.config.format);
        Ok(Arc::new(PubsubSink::new(self.shared.clone(), topics, self.shared.form.clone().with_format(format))))
    }
}

/// Who we are.
enum Access {
    /// Nobody, for an emulator.
    None,
    ServiceAccount(Value),
    /// Application default credentials.
    Default,
}

pub(super) struct Shared {
    pub(super) name: String,
    pub(super) config: PubsubConfig,
    pub(super) room: Semaphore,
    form: Form,
    endpoint: Option<String>,
    access: Access,
    /// They outlive a connection, because they keep a token.
    credentials: OnceCell<Credentials>,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    away: AtomicBool,
}

/// Channels to the service, and what depends on them.
pub(super) struct Connection {
    pub(super) admin: TopicAdmin,
    publishers: Mutex<Publishers>,
}

impl Connection {
    /// The publisher of a topic, for messages without an ordering key.
    pub(super) fn publisher(&self, topic: &str) -> Publisher {
        self.publishers.lock().unwrap_or_else(PoisonError::into_inner).of(topic)
    }

    /// A publisher that nobody else has, for one request of so many messages.
    pub(super) fn fresh(&self, topic: &str, messages: usize) -> Publisher {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        self.publishers.lock().unwrap_or_else(PoisonError::into_inner).fresh(topic, messages)
    }
}

impl Shared {
    /// How long one request may take. It is half of all, and none begins in the second half: so none goes on afterwards.
    pub(super) fn request_timeout(&self) -> Duration {
        self.config.timeout / 2
    }

    /// The connection, with a token at hand; the error says what is missing. Nothing was sent then.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, String> {
        let connected = timeout(self.config.connect_timeout, async {
            let credentials = self.credentials.get_or_try_init(|| async { self.make_credentials() }).await?;
            // Waiting for a token within a request would have no limit.
            let token = credentials.headers(Default::default()).await;
            token.map_err(|_| NO_TOKEN.to_owned())?;
            let mut connection = self.connection.lock().await;
            if let Some(connection) = &*connection {
                return Ok(connection.clone());
            }
            Ok(connection.insert(Arc::new(self.connect(credentials).await?)).clone())
        });
        let connected = connected.await;
        connected.unwrap_or_else(|_| Err("nothing was sent: no access token within connect_timeout".into()))
    }

    fn make_credentials(&self) -> Result<Credentials, String> {
        let made = match &self.access {
            Access::None => return Ok(anonymous::Builder::new().build()),
            Access::ServiceAccount(key) => service_account::Builder::new(key.clone()).build(),
            Access::Default => Builder::default().build(),
        };
        // The text of the error may have parts of a key.
        made.map_err(|_| "nothing was sent: there are no credentials that can be used; check them".into())
    }

    /// Prepares channels; they connect with the first request, and again by themselves.
    async fn connect(&self, credentials: &Credentials) -> Result<Connection, String> {
        let problem = |_| "nothing was sent: the client cannot be set up; check endpoint and credentials".to_owned();
        // A request is made once. Who tries again is the dispatcher, which counts and can be watched.
        let once = NeverRetry.with_time_limit(self.request_timeout());
        let mut base = BasePublisher::builder().with_credentials(credentials.clone()).with_retry_policy(once);
        let mut admin = TopicAdmin::builder()
            .with_credentials(credentials.clone())
            .with_retry_policy(NeverRetry.with_time_limit(self.config.connect_timeout));
        if let Some(endpoint) = &self.endpoint {
            base = base.with_endpoint(endpoint);
            admin = admin.with_endpoint(endpoint);
        }
        let publishers = Publishers::new(base.build().await.map_err(problem)?, self.config.batch_messages);
        Ok(Connection { admin: admin.build().await.map_err(problem)?, publishers: Mutex::new(publishers) })
    }

    /// Uses a connection no more. The network may have lost it without a word, and Google's client would wait for it until
    /// the operating system gives up.
    pub(super) async fn forget(&self, lost: &Arc<Connection>) {
        let mut connection = self.connection.lock().await;
        connection.take_if(|connection| Arc::ptr_eq(connection, lost));
    }

    /// Tells the operator once that the service cannot be reached, and once that it can again.
    pub(super) fn note(&self, away: bool) {
        if self.away.swap(away, Ordering::Relaxed) == away {
            return;
        }
        match away {
            true => tracing::warn!(sink = self.name, "Pub/Sub does not answer"),
            false => tracing::info!(sink = self.name, "Pub/Sub answers again"),
        }
    }
}
