//! The conformance suite of the sink seam: the same promises, kept by every sink against its real broker.
//!
//! The test side of a sink implements [`Broker`] and calls [`sink_conformance!`](crate::sink_conformance!) once; each
//! promise becomes a test of its own, with a broker (or a destination of its own on a shared one) for itself. What a
//! sink cannot do is said by [`Broker::cannot`], with the reason, and is printed by the test that leaves it out: nothing
//! is skipped silently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postrider::sinks::Format;
use postrider::{ClaimedMessage, Lease, Outcome, Payload, RowAddress, Sink};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::wait::eventually;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a sink waits where an answer is to come: longer than any machine stands still.
const PATIENT: Duration = Duration::from_secs(30);

/// How long a sink waits where no answer may come. On a busy machine it may miss one that does, so what it says once
/// proves little: it is asked until it has delivered.
const IMPATIENT: Duration = Duration::from_secs(2);

/// How often an answer is lost until one is lost between a message and nothing else.
const SILENCES: usize = 20;

/// What came out of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// Headers, attributes, properties: whatever the broker calls them.
    pub headers: BTreeMap<String, String>,
    /// The key, if the broker has such a thing.
    pub key: Option<String>,
}

impl Arrival {
    /// The id of the message that arrived.
    pub fn id(&self) -> Option<Uuid> {
        self.headers.get("event_id").and_then(|text| text.parse().ok())
    }
}

/// What a broker or its sink has no such thing for. Each needs a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Refusing one message for good because of what is in it.
    Reject,
    /// Refusing messages for now, for another reason than being down.
    Obstruct,
    /// Taking messages while its answers do not arrive.
    Silence,
    /// Being stopped and started again with its data.
    Restart,
    /// A payload of 1 MB.
    Megabyte,
    /// A limit of the size of a message.
    Limit,
    /// Bytes that are not UTF-8 as they are. If not, the sink writes them in base64, as it documents.
    Bytes,
    /// Messages of one key in the order of their publishing.
    Order,
    /// The formats that a route may choose.
    Formats,
}

/// The test side of one sink: a broker, a destination on it, and a client of its own that reads from it.
#[async_trait]
pub trait Broker: Sized + Send + Sync + 'static {
    /// A broker with an empty destination.
    async fn start() -> Self;

    /// A sink on that destination that gives up a publish, or to connect, after `patience`; or a little later, if it
    /// cannot be as short.
    async fn sink(&self, format: Format, patience: Duration) -> Arc<dyn Sink>;

    /// All that has arrived so far, in its order, with duplicates.
    async fn arrivals(&self) -> Vec<Arrival>;

    /// Stops the broker; what it has, it keeps.
    async fn stop(&self);

    /// Starts it again, at the same address.
    async fn restart(&self);

    /// The destination takes no messages for now, although the broker runs.
    async fn obstruct(&self);

    /// The end of that.
    async fn clear(&self);

    /// The broker gets what is sent, and its answers get lost.
    async fn silence(&self);

    /// The end of that.
    async fn speak(&self);

    /// A message that the sink or the broker refuses for good.
    fn poison(&self) -> ClaimedMessage;

    /// A size of payloads over the limit of sink or broker; the message is refused for good.
    fn too_large(&self) -> usize;

    /// Why something cannot be done.
    fn cannot(&self, ability: Ability) -> Option<&'static str> {
        let _ = ability;
        None
    }
}

/// A message with a JSON payload.
pub fn message(number: usize) -> ClaimedMessage {
    of_payload(Payload::Json(json!({ "number": number }).to_string()))
}

/// A message with a payload.
pub fn of_payload(payload: Payload) -> ClaimedMessage {
    let lease = Lease { id: Uuid::now_v7(), worker: Uuid::now_v7(), attempt: 1, address: RowAddress::default() };
    let mut message = ClaimedMessage::new(lease, "shop".into(), "order.placed".into(), payload);
    message.key = Some("order-7".into());
    message.created_at_micros = 1_700_000_000_123_456;
    message
}

fn lacks(broker: &impl Broker, ability: Ability) -> bool {
    let why = broker.cannot(ability);
    if let Some(why) = why {
        println!("left out, {ability:?}: {why}");
    }
    why.is_some()
}

fn is_delivered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted | Outcome::Duplicate)
}

fn is_for_good(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reject(_) | Outcome::Unsendable(_))
}

fn comes_again(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Retry { .. } | Outcome::Unknown(_) | Outcome::Busy { .. })
}

/// Waits until all of these have arrived, and answers everything that has.
async fn arrived(broker: &impl Broker, messages: &[ClaimedMessage]) -> Vec<Arrival> {
    eventually(PATIENCE, || async {
        let ids: Vec<_> = broker.arrivals().await.iter().filter_map(Arrival::id).collect();
        messages.iter().all(|message| ids.contains(&message.id))
    })
    .await;
    broker.arrivals().await
}

/// Publishes until every message is delivered, as a dispatcher would; answers how many publishes that took.
async fn delivered(sink: &dyn Sink, messages: &[ClaimedMessage]) -> usize {
    let (left, publishes) = (Mutex::new(messages.to_vec()), AtomicUsize::new(0));
    eventually(PATIENCE, || async {
        let mut left = left.lock().await;
        publishes.fetch_add(1, Ordering::Relaxed);
        let outcomes = sink.publish(&left).await;
        assert_eq!(outcomes.len(), left.len(), "one outcome per message");
        assert!(!outcomes.iter().any(is_for_good), "{outcomes:?}");
        let mut outcomes = outcomes.iter();
        left.retain(|_| !outcomes.next().is_some_and(is_delivered));
        left.is_empty()
    })
    .await;
    publishes.into_inner()
}

/// Publishes a message whose answer gets lost, and answers the outcome.
///
/// On a busy machine the time may be over before anything was sent. A sink may say so, and then it must be true; the
/// answer is lost anew.
async fn unanswered(broker: &impl Broker, sink: &dyn Sink, sent: &ClaimedMessage) -> Outcome {
    for _ in 0..SILENCES {
        delivered(sink, &[message(1)]).await; // there is a connection
        broker.silence().await;
        let mut outcomes = sink.publish(std::slice::from_ref(sent)).await;
        assert_eq!(outcomes.len(), 1, "one outcome per message");
        broker.speak().await;
        let outcome = outcomes.remove(0);
        if !matches!(outcome, Outcome::Retry { .. }) {
            return outcome;
        }
        let arrivals = broker.arrivals().await;
        assert!(arrivals.iter().all(|arrival| arrival.id() != Some(sent.id)), "{outcome:?}, and it has arrived");
    }
    panic!("in {SILENCES} silences nothing was sent");
}

/// The promises.
#[allow(missing_docs)] // the names are the promises
pub mod promises {
    use super::*;

    pub async fn a_message_that_is_accepted_arrives<B: Broker>() {
        let broker = B::start().await;
        let sink = broker.sink(Format::Plain, PATIENT).await;
        let sent = message(1);
        assert_eq!(sink.publish(std::slice::from_ref(&sent)).await, [Outcome::Accepted]);
        let arrivals = arrived(&broker, std::slice::from_ref(&sent)).await;
        assert_eq!(arrivals.len(), 1, "{arrivals:?}");
        assert_eq!(arrivals[0].body, sent.payload.as_bytes());
        assert_eq!(sink.ready().await, Ok(()));
    }

    pub async fn a_batch_arrives_with_one_outcome_per_message<B: Broker>() {
        let broker = B::start().await;
        let sink = broker.sink(Format::Plain, PATIENT).await;
        assert_eq!(sink.publish(&[]).await, []);
        let sent: Vec<_> = (0..300).map(message).collect();
        for batch in sent.chunks(sink.max_batch()) {
            assert_eq!(sink.publish(batch).await, vec![Outcome::Accepted; batch.len()]);
        }
        assert_eq!(arrived(&broker, &sent).await.len(), sent.len());
    }

    pub async fn r59_a_failing_message_fails_alone<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Reject) {
            return;
        }
        let sink = broker.sink(Format::Plain, PATIENT).await;
        let size = sink.max_batch().min(7);
        let mut batch: Vec<_> = (0..size).map(message).collect();
        batch[size / 2] = broker.poison();
        let outcomes = sink.publish(&batch).await;
        for (at, outcome) in outcomes.iter().enumerate() {
            match at == size / 2 {
                true => assert!(is_for_good(outcome), "{outcome:?}"),
                false => assert_eq!(*outcome, Outcome::Accepted),
            }
        }
        let poison = batch.remove(size / 2);
        assert!(arrived(&broker, &batch).await.iter().all(|arrival| arrival.id() != Some(poison.id)));
    }

    pub async fn what_is_refused_for_good_is_dead_at_once<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Reject) {
            return;
        }
        let sink = broker.sink(Format::Plain, PATIENT).await;
        let outcomes = sink.publish(&[broker.poison()]).await;
        assert!(matches!(outcomes.as_slice(), [outcome] if is_for_good(outcome)), "{outcomes:?}");
        assert_eq!(sink.publish(&[message(1)]).await, [Outcome::Accepted], "the sink works on");
    }

    pub async fn what_is_refused_for_now_comes_again<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Obstruct) {
            return;
        }
        let sink = broker.sink(Format::Plain, IMPATIENT).await;
        let sent = [message(1)];
        broker.obstruct().await;
        let outcomes = sink.publish(&sent).await;
        assert!(matches!(outcomes.as_slice(), [outcome] if comes_again(outcome)), "{outcomes:?}");
        broker.clear().await;
        delivered(&*sink, &sent).await;
        arrived(&broker, &sent).await;
    }

    pub async fn r50_a_lost_answer_is_unknown_and_the_message_comes_again_with_its_id<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Silence) {
            return;
        }
        let sink = broker.sink(Format::Plain, IMPATIENT).await;
        let sent = [message(2)];
        let outcome = unanswered(&broker, &*sink, &sent[0]).await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
        delivered(&*sink, &sent).await;
        let arrivals = arrived(&broker, &sent).await;
        let copies: Vec<_> = arrivals.iter().filter(|arrival| arrival.id() == Some(sent[0].id)).collect();
        assert!(copies.iter().all(|copy| copy.body == copies[0].body), "{copies:?}");
    }

    pub async fn r49_a_broker_that_stops_and_comes_back_gets_everything<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Restart) {
            return;
        }
        let sink = broker.sink(Format::Plain, IMPATIENT).await;
        let before = [message(1), message(2)];
        delivered(&*sink, &before).await;
        broker.stop().await;
        let during = [message(3), message(4)];
        for batch in during.chunks(sink.max_batch()) {
            let outcomes = sink.publish(batch).await;
            assert!(outcomes.iter().all(comes_again), "{outcomes:?}");
        }
        let why = sink.ready().await.expect_err("not ready while it is down");
        assert!(!why.is_empty());
        broker.restart().await;
        eventually(PATIENCE, || async { sink.ready().await.is_ok() }).await;
        for batch in during.chunks(sink.max_batch()) {
            delivered(&*sink, batch).await;
        }
        arrived(&broker, &during).await;
    }

    pub async fn a_publish_that_is_cut_off_leaves_the_sink_usable<B: Broker>() {
        let broker = B::start().await;
        let sink = broker.sink(Format::Plain, PATIENT).await;
        // At the first connection, and at every place behind it.
        for millis in 0..20 {
            let batch: Vec<_> = (0..sink.max_batch().min(10)).map(message).collect();
            let cut_off = tokio::time::timeout(Duration::from_millis(millis), sink.publish(&batch)).await;
            assert!(cut_off.is_err() || cut_off.is_ok_and(|outcomes| outcomes.len() == batch.len()));
        }
        let sent = [message(1)];
        delivered(&*sink, &sent).await;
        arrived(&broker, &sent).await;
        eventually(PATIENCE, || async { sink.ready().await.is_ok() }).await;
    }

    pub async fn calls_at_the_same_time_have_outcomes_of_their_own<B: Broker>() {
        let broker = B::start().await;
        let sink = broker.sink(Format::Plain, PATIENT).await;
        delivered(&*sink, &[message(0)]).await;
        let size = sink.max_batch().min(50);
        let mut calls: Vec<Vec<_>> = (0..4).map(|_| (0..size).map(message).collect()).collect();
        for (call, batch) in calls.iter_mut().enumerate() {
            batch.iter_mut().for_each(|message| message.key = Some(format!("key-{call}")));
        }
        let refused = (!lacks(&broker, Ability::Reject)).then_some(2);
        if let Some(call) = refused {
            calls[call] = vec![broker.poison()];
        }
        let outcomes = futures::future::join_all(calls.iter().map(|batch| sink.publish(batch))).await;
        for (call, (batch, outcomes)) in calls.iter().zip(&outcomes).enumerate() {
            assert_eq!(outcomes.len(), batch.len());
            match refused == Some(call) {
                true => assert!(is_for_good(&outcomes[0]), "{outcomes:?}"),
                false => assert!(outcomes.iter().all(is_delivered), "{outcomes:?}"),
            }
        }
        if let Some(call) = refused {
            calls.remove(call);
        }
        arrived(&broker, &calls.concat()).await;
    }

    pub async fn messages_of_a_key_arrive_in_their_order<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Order) {
            return;
        }
        let sink = broker.sink(Format::Plain, PATIENT).await;
        let mut sent: Vec<_> = (0..200).map(message).collect();
        for (at, message) in sent.iter_mut().enumerate() {
            message.key = Some(format!("key-{}", at % 5));
        }
        let mut again = false;
        for batch in sent.chunks(sink.max_batch()) {
            again |= delivered(&*sink, batch).await > 1;
        }
        let mut arrivals = arrived(&broker, &sent).await;
        if again {
            // What was published twice may have arrived twice, and the first time counts.
            let mut seen = BTreeSet::new();
            arrivals.retain(|arrival| seen.insert(arrival.id()));
        }
        for key in 0..5 {
            let of_key = |wanted: &Option<String>| wanted.as_deref() == Some(&format!("key-{key}"));
            let expected: Vec<_> = sent.iter().filter(|m| of_key(&m.key)).map(|m| Some(m.id)).collect();
            let key = |arrival: &&Arrival| of_key(&arrival.headers.get("key").cloned());
            assert_eq!(arrivals.iter().filter(key).map(Arrival::id).collect::<Vec<_>>(), expected);
        }
    }

    pub async fn headers_arrive_as_they_were_given<B: Broker>() {
        let broker = B::start().await;
        let sink = broker.sink(Format::Plain, PATIENT).await;
        let mut sent = message(1);
        sent.tenant_id = Some(Uuid::nil());
        sent.dedupe_key = Some("order/7".into());
        for (name, value) in [
            ("colour", "rosé 🍷"),
            ("event-type", "order_placed"),
            ("aggregate-type", "order"),
            ("event_id", "not the id"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ] {
            sent.headers.insert(name.into(), value.into());
        }
        assert_eq!(sink.publish(std::slice::from_ref(&sent)).await, [Outcome::Accepted]);
        let arrivals = broker_arrival(&broker, &sent).await;
        let expected = [
            ("event_id", sent.id.to_string()),
            ("event_type", "order_placed".into()),
            ("aggregate_type", "order".into()),
            ("aggregate_id", "order-7".into()),
            ("namespace", "shop".into()),
            ("topic", "order.placed".into()),
            ("key", "order-7".into()),
            ("tenant_id", Uuid::nil().to_string()),
            ("dedupe_key", "order/7".into()),
            ("attempt", "1".into()),
            ("created_at", "2023-11-14T22:13:20.123456Z".into()),
            ("content-type", "application/json".into()),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            ("colour", "rosé 🍷".into()),
            ("postrider-header-event_id", "not the id".into()),
        ];
        for (name, value) in expected {
            assert_eq!(arrivals.headers.get(name), Some(&value), "{name} in {:?}", arrivals.headers);
        }
    }

    pub async fn a_payload_of_a_megabyte_arrives<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Megabyte) {
            return;
        }
        let sink = broker.sink(Format::Plain, PATIENT).await;
        // 1 MB and not 1 MiB: brokers whose limit that is count headers as well.
        let sent = of_payload(Payload::Json(json!("x".repeat(999_000)).to_string()));
        assert_eq!(sink.publish(std::slice::from_ref(&sent)).await, [Outcome::Accepted]);
        assert_eq!(broker_arrival(&broker, &sent).await.body, sent.payload.as_bytes());
    }

    pub async fn a_payload_over_the_limit_is_refused_for_good_and_alone<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Limit) {
            return;
        }
        let sink = broker.sink(Format::Plain, PATIENT).await;
        let large = of_payload(Payload::Json(json!("x".repeat(broker.too_large())).to_string()));
        let outcomes = sink.publish(std::slice::from_ref(&large)).await;
        assert!(matches!(outcomes.as_slice(), [outcome] if is_for_good(outcome)), "{outcomes:?}");
        assert_eq!(sink.publish(&[message(1)]).await, [Outcome::Accepted], "the sink works on");
    }

    pub async fn r07_bytes_arrive_byte_for_byte<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Bytes) {
            return;
        }
        let sink = broker.sink(Format::Plain, PATIENT).await;
        let bytes: Vec<u8> = (0..=255).cycle().take(4_099).collect();
        let mut sent = of_payload(Payload::Bytes(bytes.clone()));
        sent.headers.insert("content-type".into(), "application/x-canary".into());
        assert_eq!(sink.publish(std::slice::from_ref(&sent)).await, [Outcome::Accepted]);
        let arrival = broker_arrival(&broker, &sent).await;
        assert_eq!(arrival.body, bytes);
        assert_eq!(arrival.headers.get("content-type").map(String::as_str), Some("application/x-canary"));
        // No payload at all is a payload too.
        let empty = of_payload(Payload::Bytes(Vec::new()));
        let outcomes = sink.publish(std::slice::from_ref(&empty)).await;
        if outcomes != [Outcome::Accepted] {
            assert!(matches!(outcomes.as_slice(), [outcome] if is_for_good(outcome)), "{outcomes:?}");
        }
    }

    pub async fn every_format_has_the_id_in_headers_and_body<B: Broker>() {
        let broker = B::start().await;
        if lacks(&broker, Ability::Formats) {
            return;
        }
        for format in Format::ALL {
            let sink = broker.sink(format, PATIENT).await;
            let mut sent = message(1);
            sent.headers.insert("actor".into(), r#"{"type":"user","id":"42"}"#.into());
            assert_eq!(sink.publish(std::slice::from_ref(&sent)).await, [Outcome::Accepted], "{format:?}");
            let arrival = broker_arrival(&broker, &sent).await;
            let body: Value = serde_json::from_slice(&arrival.body).expect("JSON");
            let id = sent.id.to_string();
            match format {
                Format::Envelope => {
                    assert_eq!(
                        body,
                        json!({"version": 1, "eventId": id, "occurredAt": "2023-11-14T22:13:20.123456Z",
                               "actor": {"type": "user", "id": "42"}, "data": {"number": 1}})
                    );
                }
                Format::CloudeventsStructured => {
                    assert_eq!((&body["id"], &body["data"]), (&json!(id), &json!({"number": 1})));
                    assert_eq!(
                        arrival.headers.get("content-type").map(String::as_str),
                        Some("application/cloudevents+json")
                    );
                }
                Format::CloudeventsBinary => {
                    assert_eq!(body, json!({"number": 1}));
                    let ours = |wanted: &str| {
                        arrival
                            .headers
                            .iter()
                            .any(|(name, value)| name.ends_with(wanted) && name != "event_id" && *value == id)
                    };
                    assert!(ours("id"), "{:?}", arrival.headers);
                }
                _ => assert_eq!(body, json!({"number": 1})),
            }
        }
    }
}

/// The arrival of one message.
async fn broker_arrival(broker: &impl Broker, sent: &ClaimedMessage) -> Arrival {
    let arrivals = arrived(broker, std::slice::from_ref(sent)).await;
    arrivals.into_iter().find(|arrival| arrival.id() == Some(sent.id)).expect("it has arrived")
}

/// Makes one test per promise for a [`Broker`].
#[macro_export]
macro_rules! sink_conformance {
    ($broker:ty) => {
        $crate::sink_conformance! { $broker,
            a_message_that_is_accepted_arrives
            a_batch_arrives_with_one_outcome_per_message
            r59_a_failing_message_fails_alone
            what_is_refused_for_good_is_dead_at_once
            what_is_refused_for_now_comes_again
            r50_a_lost_answer_is_unknown_and_the_message_comes_again_with_its_id
            r49_a_broker_that_stops_and_comes_back_gets_everything
            a_publish_that_is_cut_off_leaves_the_sink_usable
            calls_at_the_same_time_have_outcomes_of_their_own
            messages_of_a_key_arrive_in_their_order
            headers_arrive_as_they_were_given
            a_payload_of_a_megabyte_arrives
            a_payload_over_the_limit_is_refused_for_good_and_alone
            r07_bytes_arrive_byte_for_byte
            every_format_has_the_id_in_headers_and_body
        }
    };
    ($broker:ty, $($promise:ident)*) => {
        mod conformance {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $promise() {
                    $crate::sinks::promises::$promise::<$broker>().await;
                }
            )*
        }
    };
}
