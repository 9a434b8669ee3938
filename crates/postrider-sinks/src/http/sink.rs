//! The client that all routes share, and the sink of one route.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use postrider_core::sabotage::{self, Defect};
use postrider_core::{ClaimedMessage, Destination, Outcome, Sink};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Certificate, Client, Response, Url, redirect, retry};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Host;

use super::address::{AddressPolicy, AllowList};
use super::config::HttpConfig;
use super::format::{Content, content};
use super::lane::Lane;
use super::outcome::{Rules, of_error};
use super::resolve::{Lookup, Resolver, SystemLookup};
use super::sign::Signer;
use super::target::{Origin, Target};
use crate::format::{Format, Source};
use crate::kind::{Binding, SinkClient};
use crate::problem::ConfigProblem;

/// How long the rest of an answer is waited for, once its status is known. It is only read to keep the connection.
const DRAIN: Duration = Duration::from_secs(1);

/// How long a connection is kept for the next request. Common servers close theirs after five seconds; a request that crosses
/// with that would have an unknown outcome.
const IDLE: Duration = Duration::from_secs(4);

/// What all routes to a sink share: connections, limits, and for each origin its room and breaker. Clones are the same
/// client.
#[derive(Clone)]
pub struct HttpClient {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    config: HttpConfig,
    source: Source,
    signer: Signer,
    rules: Rules,
    headers: HeaderMap,
    /// Not there if neither the system nor the operator trusts any certificate.
    https: Option<Way>,
    http: Way,
    lanes: Mutex<HashMap<Origin, Weak<Lane>>>,
}

/// How to get to an origin. There are two of them, because plain HTTP may go to fewer addresses.
#[derive(Clone)]
pub(crate) struct Way {
    resolver: Resolver,
    pub(crate) client: Client,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// A client by the name of `http`.
    pub fn new(config: &HttpConfig) -> Result<Self, ConfigProblem> {
        Self::named("http", config)
    }

    /// A client; the name is the sink's in metrics.
    pub fn named(name: impl Into<String>, config: &HttpConfig) -> Result<Self, ConfigProblem> {
        Self::with_lookup(name, config, SystemLookup)
    }

    /// A client that looks names up in a way of your own. Its answers are checked like the system's.
    pub fn with_lookup(
        name: impl Into<String>,
        config: &HttpConfig,
        lookup: impl Lookup,
    ) -> Result<Self, ConfigProblem> {
        config.check()?;
        let lookup: Arc<dyn Lookup> = Arc::new(lookup);
        let allowed = AllowList::new(&config.allow_addresses)?;
        let trust = authorities(config)?;
        let way = |public: bool, trust: Trust| {
            let policy = AddressPolicy { allowed: allowed.clone(), public };
            Way::new(config, Resolver { lookup: lookup.clone(), policy }, trust)
        };
        let https = match trust {
            Some(trust) => Some(way(true, Trust::Also(trust)).map_err(|_| ConfigProblem::new("ca_file", NO_TLS))?),
            None => way(true, Trust::Also(Vec::new())).ok(),
        };
        let http = way(config.allow_plain_http, Trust::Nobody);
        let shared = Shared {
            name: name.into(),
            source: Source::new(&config.source)?,
            signer: Signer::new(&config.signing_keys)?,
            rules: Rules::new(config),
            headers: headers(config)?,
            https,
            http: http.map_err(|_| ConfigProblem::new("http", "the HTTP client cannot be set up"))?,
            lanes: Mutex::default(),
            config: config.clone(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The sink of a route: its destination is a URL, fixed or with fields after the host.
    pub fn sink(&self, destination: Destination) -> Result<HttpSink, ConfigProblem> {
        let target = Target::new(&destination)?;
        let way = match target.origin.https {
            true => self.shared.https.clone().ok_or_else(|| ConfigProblem::new("ca_file", NO_ROOTS))?,
            false => self.shared.http.clone(),
        };
        check_literal(&target, &way.resolver.policy)?;
        let lane = self.shared.lane(&target.origin);
        Ok(HttpSink { shared: self.shared.clone(), format: self.shared.config.format, target, way, lane })
    }
}

impl SinkClient for HttpClient {
    fn bind(&self, binding: Binding) -> Result<Arc<dyn Sink>, ConfigProblem> {
        let sink = self.sink(binding.needed("https://example.com/hooks")?.clone())?;
        let format = binding.format.unwrap_or(sink.format);
        Ok(Arc::new(sink.with_format(format)))
    }
}

/// Whether a sink with these settings could send to a destination. It connects to nothing and looks nothing up.
pub(super) fn check_destination(config: &HttpConfig, destination: &Destination) -> Result<(), ConfigProblem> {
    let target = Target::new(destination)?;
    let public = target.origin.https || config.allow_plain_http;
    check_literal(&target, &AddressPolicy { allowed: AllowList::new(&config.allow_addresses)?, public })
}

/// The HTTP client does not look literal addresses up, so this is where they are checked.
fn check_literal(target: &Target, policy: &AddressPolicy) -> Result<(), ConfigProblem> {
    let address = match target.origin.host {
        Host::Ipv4(address) => address.into(),
        Host::Ipv6(address) => address.into(),
        Host::Domain(_) => return Ok(()),
    };
    policy.check(address).map_err(|refused| ConfigProblem::new("destination", refused.to_string()))
}

impl Shared {
    /// Whether all routes lead to one origin.
    fn has_one_origin(&self) -> bool {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.values().filter(|lane| lane.strong_count() > 0).take(2).count() < 2
    }

    /// The lane of an origin. It lives as long as a route leads there.
    fn lane(&self, origin: &Origin) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|_, lane| lane.strong_count() > 0);
        if let Some(lane) = lanes.get(origin).and_then(Weak::upgrade) {
            return lane;
        }
        let lane = Arc::new(Lane::new(&self.config));
        lanes.insert(origin.clone(), Arc::downgrade(&lane));
        lane
    }

    fn sign(&self, message: &ClaimedMessage, content: &mut Content) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let Some(signature) = self.signer.signature(message.id, now, &content.body) else { return };
        let fields = [
            ("webhook-id", message.id.to_string()),
            ("webhook-timestamp", now.to_string()),
            ("webhook-signature", signature),
        ];
        for (name, value) in fields {
            // An id, a number and base64 are header values.
            if let Ok(value) = HeaderValue::try_from(value) {
                content.headers.insert(HeaderName::from_static(name), value);
            }
        }
    }

    fn count(&self, status: &'static str) {
        metrics::counter!("postrider_http_requests_total", "sink" => self.name.clone(), "status" => status)
            .increment(1);
    }
}

const NO_TLS: &str = "TLS cannot be set up with the certificates in it";
const NO_ROOTS: &str = "the system trusts no certificates, so https:// cannot work; install them, or give a file here";

/// Whose certificates are trusted.
enum Trust {
    Nobody,
    /// The system's, and these.
    Also(Vec<Certificate>),
}

impl Way {
    fn new(config: &HttpConfig, resolver: Resolver, trust: Trust) -> Result<Self, reqwest::Error> {
        let builder = Client::builder()
            .dns_resolver(resolver.clone())
            .connect_timeout(config.connect_timeout)
            .timeout(config.timeout)
            .pool_max_idle_per_host(config.concurrency)
            .pool_idle_timeout(IDLE)
            .redirect(match sabotage::has(Defect::RedirectFollowed) {
                true => redirect::Policy::default(),
                false => redirect::Policy::none(),
            })
            .retry(retry::never())
            .referer(false)
            // What another crate of the same program switches on in the library must not change what we do.
            .no_proxy()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .http1_only();
        let builder = match trust {
            Trust::Nobody => builder.tls_certs_only([]),
            Trust::Also(certificates) => builder.tls_certs_merge(certificates),
        };
        Ok(Self { resolver, client: builder.build()? })
    }
}

fn authorities(config: &HttpConfig) -> Result<Option<Vec<Certificate>>, ConfigProblem> {
    let Some(path) = &config.ca_file else { return Ok(None) };
    let problem = |what: String| ConfigProblem::new("ca_file", what);
    let pem = std::fs::read(path).map_err(|error| problem(format!("it cannot be read: {}", error.kind())))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|_| problem("it is no PEM file".into()))?;
    match certificates.is_empty() {
        true => Err(problem("it holds no certificate".into())),
        false => Ok(Some(certificates)),
    }
}

fn headers(config: &HttpConfig) -> Result<HeaderMap, ConfigProblem> {
    let mut headers = HeaderMap::new();
    let agent = HeaderValue::from_str(&config.user_agent);
    headers.insert(USER_AGENT, agent.map_err(|_| ConfigProblem::new("user_agent", "it is no header value"))?);
    for (name, value) in &config.headers {
        let problem = || ConfigProblem::new(format!("headers.{}", name.escape_default()), "it is no header");
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| problem())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| problem())?, value);
    }
    Ok(headers)
}

/// The sink of one route.
pub struct HttpSink {
    shared: Arc<Shared>,
    format: Format,
    target: Target,
    pub(crate) way: Way,
    lane: Arc<Lane>,
}

/// Paths may hold tokens, so only the origin is shown.
impl fmt::Debug for HttpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSink").field("origin", &self.target.origin).finish_non_exhaustive()
    }
}

impl HttpSink {
    /// A sink of its own, with a client of its own. Routes that share limits share an [`HttpClient`].
    pub fn new(config: &HttpConfig, destination: Destination) -> Result<Self, ConfigProblem> {
        HttpClient::new(config)?.sink(destination)
    }

    /// Writes messages in another format than the client's settings say.
    pub fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    async fn publish_one(&self, message: &ClaimedMessage) -> Outcome {
        let shared = &*self.shared;
        let url = self.target.url(message);
        let made = url.and_then(|url| Ok((url, content(self.format, &shared.source, message, &shared.headers)?)));
        let (url, mut content) = match made {
            Ok(made) => made,
            Err(why) => return Outcome::Unsendable(why),
        };
        let request = match self.lane.enter(message.id, self.shared.has_one_origin()).await {
            Ok(request) => request,
            Err(busy) => {
                shared.count("busy");
                return busy;
            }
        };
        shared.sign(message, &mut content);
        let outcome = self.send(url, content).await;
        request.leave(outcome)
    }

    async fn send(&self, url: Url, content: Content) -> Outcome {
        let answer = self.way.client.post(url).headers(content.headers).body(content.body).send().await;
        match answer {
            Ok(response) => {
                let status = response.status();
                self.shared.count(class(status.as_u16()));
                let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let outcome = self.shared.rules.outcome(status, after, SystemTime::now());
                drain(response, self.shared.config.response_limit).await;
                outcome
            }
            Err(error) => {
                self.shared.count("none");
                of_error(&error)
            }
        }
    }

    async fn connect(&self) -> Result<(), String> {
        let origin = &self.target.origin;
        let addresses =
            self.way.resolver.addresses(&origin.host.to_string()).await.map_err(|error| error.to_string())?;
        let mut why = "it has no address".to_owned();
        for address in addresses {
            match TcpStream::connect(SocketAddr::new(address, origin.port)).await {
                Ok(_) => return Ok(()),
                Err(error) => why = format!("no connection: {}", error.kind()),
            }
        }
        Err(why)
    }
}

/// Reads what is left of an answer so that the connection can be used again; a long or slow one is not worth it.
async fn drain(mut response: Response, limit: usize) {
    let read = async {
        let mut left = limit;
        while let Ok(Some(chunk)) = response.chunk().await {
            match left.checked_sub(chunk.len()) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // What was answered is known already.
    let _ = timeout(DRAIN, read).await;
}

fn class(status: u16) -> &'static str {
    match status {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "other",
    }
}

#[async_trait]
impl Sink for HttpSink {
    fn concurrency(&self) -> Option<usize> {
        Some(self.shared.config.concurrency)
    }

    /// Each of several origins is left alone by itself while it is down.
    fn minds_outages(&self) -> bool {
        !self.shared.has_one_origin()
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for message in batch {
            outcomes.push(self.publish_one(message).await);
        }
        outcomes
    }

    /// Whether somebody takes connections at the destination's origin.
    async fn ready(&self) -> Result<(), String> {
        let limit = self.shared.config.connect_timeout;
        let connected = timeout(limit, self.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err("no connection within connect_timeout".into()));
        connected.map_err(|why| format!("{:?}: {why}", self.target.origin))
    }
}
