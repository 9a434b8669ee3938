//! Routes: which sink a message goes to, and under which destination name.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use tokio::time::Instant;
use wildmatch::WildMatch;

use crate::breaker::{BreakerConfig, Pass, Turnstile};
use crate::dispatch::DEFAULT_NAME;
use crate::outcome::Outcome;
use crate::sink::{BatchFor, Sink};
use crate::store::ClaimedMessage;

/// How long a message waits that no route is for, before it is looked at again.
const UNROUTED_WAIT: Duration = Duration::from_secs(30);

/// What a message is called where it goes: a topic, a subject, a queue, an address.
///
/// Written as text: `orders` is fixed, `{topic}` is the message's topic, and `events.{namespace}.{topic}` is a
/// template. A template begins with text of the operator's own, so that no message chooses a destination outside of
/// it; its fields are `{namespace}`, `{topic}`, `{key}` and `{tenant}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Namespace,
    Topic,
    Key,
    Tenant,
}

impl Field {
    const ALL: [(&'static str, Self); 4] =
        [("namespace", Self::Namespace), ("topic", Self::Topic), ("key", Self::Key), ("tenant", Self::Tenant)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }

    fn of(self, message: &ClaimedMessage) -> Option<Cow<'_, str>> {
        match self {
            Self::Namespace => Some(Cow::Borrowed(&message.namespace)),
            Self::Topic => Some(Cow::Borrowed(&message.topic)),
            Self::Key => message.key.as_deref().map(Cow::Borrowed),
            Self::Tenant => message.tenant_id.map(|tenant| Cow::Owned(tenant.to_string())),
        }
    }
}

/// A destination was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum InvalidDestination {
    #[error("the destination is empty; give a name, {{topic}} or a template")]
    Empty,
    #[error("the destination has no field {{{found}}}; use {{namespace}}, {{topic}}, {{key}} or {{tenant}}")]
    UnknownField { found: String },
    #[error("the destination has a brace without its partner; fields are written like {{topic}}")]
    Brace,
    #[error(
        "the destination begins with a field, so a message could choose any destination; begin with text of your own, or use {{topic}} alone"
    )]
    NoPrefix,
}

impl FromStr for Destination {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, InvalidDestination> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            if at > 0 {
                parts.push(Part::Text(rest[..at].to_owned()));
            }
            let inside = rest[at..].strip_prefix('{').ok_or(InvalidDestination::Brace)?;
            let (name, after) = inside.split_once('}').ok_or(InvalidDestination::Brace)?;
            let field = Field::ALL.iter().find(|(known, _)| *known == name);
            let unknown = || InvalidDestination::UnknownField { found: name.chars().take(32).collect() };
            parts.push(Part::Field(field.ok_or_else(unknown)?.1));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        match parts.as_slice() {
            [] => Err(InvalidDestination::Empty),
            [Part::Field(Field::Topic)] | [Part::Text(_), ..] => Ok(Self { parts }),
            [Part::Field(_), ..] => Err(InvalidDestination::NoPrefix),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Field(field) => write!(f, "{{{}}}", field.name()),
        })
    }
}

impl Destination {
    /// The text that every destination begins with; empty if it is the topic itself.
    pub fn prefix(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// Whether it is the same for all messages.
    pub fn is_fixed(&self) -> bool {
        matches!(self.parts.as_slice(), [Part::Text(_)])
    }

    /// The destination of a message. `encode` makes a field's value safe for where it is put, or refuses it; the error
    /// says what is wrong with the message.
    pub fn of<'a>(
        &'a self,
        message: &'a ClaimedMessage,
        encode: impl Fn(&str) -> Result<Cow<'_, str>, String>,
    ) -> Result<Cow<'a, str>, String> {
        if let [Part::Text(fixed)] = self.parts.as_slice() {
            return Ok(Cow::Borrowed(fixed));
        }
        let mut name = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Field(field) => {
                    let value = field.of(message);
                    let value = value.ok_or_else(|| {
                        format!("its destination needs the {}, and the message has none", field.name())
                    })?;
                    name.push_str(&encode(&value)?);
                }
            }
        }
        Ok(Cow::Owned(name))
    }
}

/// One rule of a [`Router`]: messages that match go to a sink.
pub struct Route {
    namespace: WildMatch,
    topic: WildMatch,
    sink_name: String,
    sink: Arc<dyn Sink>,
}

impl Route {
    /// All messages to a sink. The name is the sink's in logs and errors; routes to sinks of one name share a breaker.
    pub fn to(sink_name: impl Into<String>, sink: Arc<dyn Sink>) -> Self {
        let all = WildMatch::new("*");
        Self { namespace: all.clone(), topic: all, sink_name: sink_name.into(), sink }
    }

    /// Only messages of namespaces like this: `*` is any text and `?` any character.
    pub fn namespace(mut self, pattern: &str) -> Self {
        self.namespace = WildMatch::new(pattern);
        self
    }

    /// Only messages of topics like this: `*` is any text and `?` any character.
    pub fn topic(mut self, pattern: &str) -> Self {
        self.topic = WildMatch::new(pattern);
        self
    }

    fn matches(&self, message: &ClaimedMessage) -> bool {
        self.namespace.matches(&message.namespace) && self.topic.matches(&message.topic)
    }
}

/// A sink that hands each message to the sink of the first route that matches it.
///
/// If routes lead to several sinks, each has a breaker of its own: one that is down does not hold up the others, and
/// its messages keep their attempts, but for the failures that open it. A message that no route is for waits, with its
/// attempts, until there is one.
pub struct Router {
    name: String,
    routes: Vec<Route>,
    /// By the sinks' names.
    turnstiles: BTreeMap<String, Turnstile>,
}

impl Router {
    /// A router over routes in their order of precedence.
    pub fn new(routes: Vec<Route>, breaker: BreakerConfig) -> Self {
        let turnstile = |route: &Route| (route.sink_name.clone(), Turnstile::new(breaker));
        Self { name: DEFAULT_NAME.into(), turnstiles: routes.iter().map(turnstile).collect(), routes }
    }

    /// The name of the dispatcher that it serves, for metrics and logs; `postrider` unless it is given.
    pub fn named(mut self, dispatcher: impl Into<String>) -> Self {
        self.name = dispatcher.into();
        self
    }

    /// The sinks, each once.
    fn sinks(&self) -> Vec<(&str, &dyn Sink)> {
        let mut seen = HashSet::new();
        let new = |route: &&Route| seen.insert(Arc::as_ptr(&route.sink).cast::<()>());
        self.routes.iter().filter(new).map(|route| (route.sink_name.as_str(), &*route.sink)).collect()
    }

    async fn publish_on(&self, route: &Route, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        // The dispatcher's own breaker minds a single sink, unless that does so itself.
        let ours = self.minds_outages() && !route.sink.minds_outages();
        let turnstile = self.turnstiles.get(&route.sink_name).filter(|_| ours);
        let mut outcomes = Vec::with_capacity(batch.len());
        for part in batch.chunks(route.sink.max_batch().max(1)) {
            match turnstile {
                None => outcomes.extend(publish(&*route.sink, part).await),
                Some(turnstile) => outcomes.extend(publish_through(turnstile, &*route.sink, part).await),
            }
        }
        outcomes
    }

    /// Metrics by sink; a dispatcher's own tell nothing of its sinks apart.
    fn measure(&self, route: &Route, outcomes: &[Outcome], took: Duration) {
        let labels = [("dispatcher", self.name.clone()), ("sink", route.sink_name.clone())];
        metrics::histogram!("postrider_sink_publish_seconds", &labels).record(took);
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        outcomes.iter().for_each(|outcome| *counts.entry(outcome.kind()).or_default() += 1);
        for (outcome, count) in counts {
            let [dispatcher, sink] = labels.clone();
            metrics::counter!("postrider_sink_published_total", &[dispatcher, sink, ("outcome", outcome.to_owned())])
                .increment(count);
        }
    }

    fn route(&self, message: &ClaimedMessage) -> Option<usize> {
        self.routes.iter().position(|route| route.matches(message))
    }
}

#[async_trait]
impl Sink for Router {
    fn max_batch(&self) -> usize {
        self.routes.iter().map(|route| route.sink.max_batch()).max().unwrap_or(1)
    }

    fn concurrency(&self) -> Option<usize> {
        self.routes.iter().map(|route| route.sink.concurrency()).sum()
    }

    /// By route, and never more than its sink takes: what has to be sent in several calls would not be done in time.
    fn batch_for(&self, message: &ClaimedMessage) -> BatchFor {
        match self.route(message) {
            Some(at) => {
                // A sink may be a router itself, and keeps its own messages apart.
                let inner = self.routes[at].sink.batch_for(message);
                let key = inner.key.wrapping_add(1).wrapping_mul(self.routes.len() as u64).wrapping_add(at as u64);
                BatchFor { key, limit: inner.limit }
            }
            None => BatchFor { key: u64::MAX, limit: self.max_batch() },
        }
    }

    /// If all of its sinks do.
    fn keeps_order(&self) -> bool {
        self.routes.iter().all(|route| route.sink.keeps_order())
    }

    /// If the sink of its route does, and gets all of a batch in one call.
    fn keeps_order_for(&self, message: &ClaimedMessage) -> bool {
        let Some(route) = self.route(message).map(|at| &self.routes[at]) else { return true };
        let in_one_call = route.sink.batch_for(message).limit <= route.sink.max_batch().max(1);
        in_one_call && route.sink.keeps_order_for(message)
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let Some(first) = batch.first() else { return Vec::new() };
        let Some(route) = self.route(first).map(|at| &self.routes[at]) else {
            let dispatcher = self.name.clone();
            metrics::counter!("postrider_unrouted_total", "dispatcher" => dispatcher).increment(batch.len() as u64);
            tracing::warn!(
                dispatcher = self.name,
                namespace = first.namespace,
                topic = first.topic,
                "no route is for this message; it waits"
            );
            let why = "no route is for this message; add one".to_owned();
            return vec![Outcome::Busy { after: UNROUTED_WAIT, why }; batch.len()];
        };
        let started = Instant::now();
        let outcomes = self.publish_on(route, batch).await;
        self.measure(route, &outcomes, started.elapsed());
        outcomes
    }

    /// With several sinks it minds those that do not mind outages themselves.
    fn minds_outages(&self) -> bool {
        self.turnstiles.len() > 1 || self.routes.iter().any(|route| route.sink.minds_outages())
    }

    /// Ready if any of its sinks is: the messages of the others are given back meanwhile.
    async fn ready(&self) -> Result<(), String> {
        let ready =
            async |(name, sink): (&str, &dyn Sink)| sink.ready().await.map_err(|why| format!("sink {name:?}: {why}"));
        let answers = join_all(self.sinks().into_iter().map(ready)).await;
        if answers.is_empty() || answers.iter().any(Result::is_ok) {
            return Ok(());
        }
        Err(answers.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("; "))
    }
}

/// Exactly one outcome per message, so that none gets another one's.
async fn publish(sink: &dyn Sink, batch: &[ClaimedMessage]) -> Vec<Outcome> {
    let mut outcomes = sink.publish(batch).await;
    outcomes.resize_with(batch.len(), || Outcome::Unknown("the sink gave no outcome for this message".into()));
    outcomes
}

/// Publishes what the turnstile lets through: all of a batch, or one message as a trial.
async fn publish_through(turnstile: &Turnstile, sink: &dyn Sink, batch: &[ClaimedMessage]) -> Vec<Outcome> {
    let passes: Vec<Pass<'_>> = batch.iter().map_while(|message| turnstile.enter(message.id).ok()).collect();
    let published = match passes.len() {
        0 => Vec::new(),
        through => publish(sink, &batch[..through]).await,
    };
    let mut outcomes: Vec<Outcome> =
        passes.into_iter().zip(published).map(|(pass, outcome)| pass.leave(outcome)).collect();
    outcomes.resize_with(batch.len(), || turnstile.refuse());
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Lease, RowAddress};
    use crate::sink::callback;
    use crate::store::Payload;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use uuid::Uuid;

    fn message(namespace: &str, topic: &str) -> ClaimedMessage {
        let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        ClaimedMessage::new(lease, namespace.into(), topic.into(), Payload::Json("{}".into()))
    }

    fn plain(value: &str) -> Result<Cow<'_, str>, String> {
        Ok(Cow::Borrowed(value))
    }

    #[test]
    fn a_destination_is_fixed_the_topic_or_a_template() {
        let message = message("shop", "order.placed");
        for (text, expected) in [
            ("orders", "orders"),
            ("{topic}", "order.placed"),
            ("events.{namespace}.{topic}.v1", "events.shop.order.placed.v1"),
        ] {
            let destination: Destination = text.parse().expect(text);
            assert_eq!(destination.of(&message, plain).expect(text), expected);
            assert_eq!(destination.to_string(), text);
        }
        let keyed: Destination = "k.{key}".parse().expect("a template");
        assert!(keyed.of(&message, plain).expect_err("no key").contains("needs the key"));
    }

    #[test]
    fn a_message_cannot_choose_its_destination_freely() {
        use InvalidDestination as E;
        for (text, expected) in [
            ("", E::Empty),
            ("{key}", E::NoPrefix),
            ("{tenant}.orders", E::NoPrefix),
            ("{topic}.v1", E::NoPrefix),
            ("orders.{Topic}", E::UnknownField { found: "Topic".into() }),
            ("orders.{topic", E::Brace),
            ("orders.topic}", E::Brace),
        ] {
            assert_eq!(text.parse::<Destination>(), Err(expected), "{text}");
        }
    }

    #[tokio::test]
    async fn the_first_route_that_matches_takes_the_message() {
        let named = |name: &'static str| -> Arc<dyn Sink> {
            Arc::new(callback(move |_| async move { Err::<(), _>(crate::PublishError::reject(name)) }))
        };
        let router = Router::new(
            vec![
                Route::to("a", named("a")).namespace("shop").topic("order.*"),
                Route::to("b", named("b")).namespace("shop"),
                Route::to("c", named("c")).topic("*.failed"),
            ],
            BreakerConfig::default(),
        );
        for (namespace, topic, expected) in
            [("shop", "order.placed", "a"), ("shop", "cart", "b"), ("billing", "charge.failed", "c")]
        {
            let outcome = router.publish(&[message(namespace, topic)]).await;
            assert_eq!(outcome, [Outcome::Reject(expected.into())], "{namespace} {topic}");
        }
        let outcome = router.publish(&[message("billing", "charge")]).await;
        assert!(matches!(outcome.as_slice(), [Outcome::Busy { .. }]), "{outcome:?}");
    }

    struct Asked(AtomicUsize);

    #[async_trait]
    impl Sink for Asked {
        async fn publish(&self, _batch: &[ClaimedMessage]) -> Vec<Outcome> {
            Vec::new()
        }

        async fn ready(&self) -> Result<(), String> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err("down".into())
        }
    }

    #[tokio::test]
    async fn each_sink_is_asked_once_whether_it_is_ready() {
        let (one, other) = (Arc::new(Asked(AtomicUsize::new(0))), Arc::new(Asked(AtomicUsize::new(0))));
        let routes =
            vec![Route::to("one", one.clone()), Route::to("other", other.clone()), Route::to("one", one.clone())];
        let router = Router::new(routes, BreakerConfig::default());
        assert_eq!(router.ready().await, Err("sink \"one\": down; sink \"other\": down".into()));
        assert_eq!((one.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    fn a_router_minds_outages_if_it_leads_to_several_sinks() {
        let sink = || -> Arc<dyn Sink> { Arc::new(callback(|_| async { Ok::<(), crate::PublishError>(()) })) };
        let minds = |routes| Router::new(routes, BreakerConfig::default()).minds_outages();
        assert!(!minds(vec![Route::to("a", sink()).topic("x"), Route::to("a", sink())]));
        assert!(minds(vec![Route::to("a", sink()).topic("x"), Route::to("b", sink())]));
        let inner = Router::new(vec![Route::to("a", sink()), Route::to("b", sink())], BreakerConfig::default());
        assert!(minds(vec![Route::to("c", Arc::new(inner))]), "a sink that minds itself");
    }

    #[test]
    fn messages_of_two_routes_of_a_router_within_a_router_share_no_batch() {
        let sink = || -> Arc<dyn Sink> { Arc::new(callback(|_| async { Ok::<(), String>(()) })) };
        let breaker = BreakerConfig::default();
        let inner = Router::new(vec![Route::to("a", sink()).topic("a"), Route::to("b", sink()).topic("b")], breaker);
        let outer = Router::new(vec![Route::to("x", sink()).topic("x"), Route::to("inner", Arc::new(inner))], breaker);
        let keys: HashSet<u64> =
            ["x", "a", "b", "nowhere"].iter().map(|topic| outer.batch_for(&message("n", topic)).key).collect();
        assert_eq!(keys.len(), 4);
    }

    #[tokio::test]
    async fn a_sink_that_is_down_does_not_take_the_others_with_it() {
        let down: Arc<dyn Sink> = Arc::new(callback(|_| async { Err::<(), _>("down") }));
        let up: Arc<dyn Sink> = Arc::new(callback(|_| async { Ok::<(), crate::PublishError>(()) }));
        let breaker = BreakerConfig { failures: 3, ..BreakerConfig::default() };
        let router = Router::new(vec![Route::to("down", down).topic("d"), Route::to("up", up)], breaker);
        for _ in 0..3 {
            assert_eq!(router.publish(&[message("n", "d")]).await, [Outcome::retry("down")]);
            assert_eq!(router.publish(&[message("n", "u")]).await, [Outcome::Accepted]);
        }
        let outcome = router.publish(&[message("n", "d")]).await;
        assert!(matches!(outcome.as_slice(), [Outcome::Busy { .. }]), "{outcome:?}");
        assert_eq!(router.publish(&[message("n", "u")]).await, [Outcome::Accepted]);
        assert_eq!(router.ready().await, Ok(()));
    }
}
