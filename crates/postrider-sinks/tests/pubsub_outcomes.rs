//! What the sink pubsub makes of a service that fails, by our own fake, which fails on command.
#![cfg(feature = "pubsub")]

mod pubsub_support;

use std::time::Duration;

use postrider_core::{ClaimedMessage, Outcome};
use postrider_sinks::kind::Binding;
use postrider_sinks::{Format, PubsubClient, SinkClient};
use pubsub_support::{Kind, Place};
use testkit::brokers::pubsub::{Client, PROJECT};
use testkit::sinks::message;
use testkit::{Mode, eventually};
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(180);

fn keyed(number: usize, key: &str) -> ClaimedMessage {
    let mut message = message(number);
    message.key = Some(key.into());
    message
}

fn kinds(outcomes: &[Outcome]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::kind).collect()
}

/// The numbers of what arrived with a key, in its order.
async fn arrived(place: &Place, key: &str, count: usize) -> Vec<usize> {
    let numbers = async || {
        let arrivals = place.arrivals().await.into_iter().filter(|arrival| arrival.key.as_deref() == Some(key));
        let number =
            |body: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&body).expect("JSON")["number"].as_u64();
        arrivals.map(|arrival| number(arrival.body).expect("a number") as usize).collect::<Vec<_>>()
    };
    eventually(PATIENCE, || async { numbers().await.len() >= count }).await;
    numbers().await
}

#[tokio::test(flavor = "multi_thread")]
async fn r56_a_key_that_failed_is_resumed_and_its_messages_keep_their_order() {
    for code in [Code::Unavailable, Code::DeadlineExceeded, Code::PermissionDenied] {
        let place = Place::start(Kind::Fake).await;
        let mut config = place.config(true);
        config.batch_messages = 3;
        let sink = place.bind(&config, Format::Plain);
        let first = if code == Code::DeadlineExceeded { "unknown" } else { "retry" };
        let mut batch: Vec<_> = (0..8).map(|number| keyed(number, "bad")).collect();
        batch.insert(4, keyed(100, "good"));
        place.fake().fail("bad", code, 1);
        let outcomes = sink.publish(&batch).await;
        let expected = [first, first, first, "busy", "accepted", "busy", "busy", "busy", "busy"];
        assert_eq!(kinds(&outcomes), expected, "{code:?}");
        assert_eq!(arrived(&place, "good", 1).await, [100], "another key is not held up");
        assert!(arrived(&place, "bad", 0).await.is_empty(), "nothing overtakes what failed");
        let requests = place.fake().requests();
        assert_eq!(requests.iter().filter(|request| request.key == "bad").count(), 1, "{requests:?}");

        batch.remove(4);
        assert_eq!(kinds(&sink.publish(&batch).await), ["accepted"; 8], "{code:?}: the key is not stuck");
        assert_eq!(arrived(&place, "bad", 8).await, (0..8).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r59_a_bad_message_is_found_in_its_request_and_the_others_keep_their_order() {
    for ordered in [true, false] {
        let place = Place::start(Kind::Fake).await;
        place.fake().refuse_attribute("poison");
        let sink = place.sink(Format::Plain, ordered);
        let mut batch: Vec<_> = (0..9).map(|number| keyed(number, "k")).collect();
        for at in [0, 4, 5] {
            batch[at].headers.insert("poison".into(), String::new());
        }
        let outcomes = sink.publish(&batch).await;
        let a = "accepted";
        assert_eq!(kinds(&outcomes), ["reject", a, a, a, "reject", "reject", a, a, a]);
        if ordered {
            assert_eq!(arrived(&place, "k", 6).await, [1, 2, 3, 6, 7, 8]);
        }
        assert_eq!(kinds(&sink.publish(&[keyed(9, "k")]).await), [a], "the key is not stuck");
    }
}

#[tokio::test]
async fn r59_order_is_promised_for_keys_in_one_topic_and_for_nothing_else() {
    let place = Place::start(Kind::Fake).await;
    let keeps = |ordered: bool, destination: &str, message: &ClaimedMessage| {
        let client = PubsubClient::new(&place.config(ordered)).expect("a client");
        let sink = client.bind(Binding::to(destination.parse().expect("good"))).expect("a sink");
        (sink.keeps_order(), sink.keeps_order_for(message))
    };
    assert_eq!(keeps(true, "events", &keyed(1, "k")), (true, true));
    assert_eq!(keeps(true, "events", &keyed(1, "")), (true, false), "an empty key is none");
    assert_eq!(keeps(true, "events-{topic}", &keyed(1, "k")), (false, false), "a key may be in two topics");
    assert_eq!(keeps(false, "events", &keyed(1, "k")), (false, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn r59_what_cannot_be_sent_does_not_hold_up_its_key() {
    let place = Place::start(Kind::Fake).await;
    let sink = place.sink(Format::Plain, true);
    let mut batch: Vec<_> = (0..5).map(|number| keyed(number, "k")).collect();
    batch[2].headers.insert("n".repeat(300), "v".into());
    let a = "accepted";
    assert_eq!(kinds(&sink.publish(&batch).await), [a, a, "unsendable", a, a]);
    assert_eq!(arrived(&place, "k", 4).await, [0, 1, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn s21_keys_leave_no_task_behind() {
    let place = Place::start(Kind::Fake).await;
    let sink = place.sink(Format::Plain, true);
    assert_eq!(kinds(&sink.publish(&[keyed(0, "k")]).await), ["accepted"]);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let batch: Vec<_> = (0..200).map(|number| keyed(number, &format!("k{number}"))).collect();
    assert_eq!(kinds(&sink.publish(&batch).await), vec!["accepted"; batch.len()]);
    eventually(PATIENCE, || async { tasks() < 100 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_code_of_the_service_has_its_outcome_and_nothing_is_tried_twice() {
    let place = Place::start(Kind::Fake).await;
    for (code, kind) in [
        (Code::NotFound, "retry"),
        (Code::PermissionDenied, "retry"),
        (Code::Unauthenticated, "retry"),
        (Code::ResourceExhausted, "retry"),
        (Code::Unavailable, "retry"),
        (Code::Aborted, "retry"),
        (Code::Internal, "retry"),
        (Code::FailedPrecondition, "retry"),
        (Code::Unimplemented, "retry"),
        (Code::DeadlineExceeded, "unknown"),
        (Code::Cancelled, "unknown"),
        (Code::Unknown, "unknown"),
    ] {
        for ordered in [true, false] {
            let sink = place.sink(Format::Plain, ordered);
            let before = place.fake().requests().len();
            place.fake().fail(if ordered { "k" } else { "" }, code, 1);
            assert_eq!(kinds(&sink.publish(&[keyed(1, "k")]).await), [kind], "{code:?}");
            assert_eq!(place.fake().requests().len(), before + 1, "{code:?}: one request, not more");
            assert_eq!(kinds(&sink.publish(&[keyed(1, "k")]).await), ["accepted"], "{code:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_was_dropped_does_not_wedge_its_key() {
    let place = Place::start(Kind::Fake).await;
    let sink = place.sink(Format::Plain, true);
    place.fake().fail("k", Code::Unavailable, 1);
    place.fake().hold();
    let batch = [keyed(1, "k")];
    let dropped = tokio::select! {
        outcomes = sink.publish(&batch) => panic!("{outcomes:?}"),
        () = eventually(PATIENCE, || async { place.fake().requests().len() == 1 }) => true,
    };
    assert!(dropped);
    place.fake().release();
    eventually(PATIENCE, || async { kinds(&sink.publish(&batch).await) == ["accepted"] }).await;
    assert_eq!(arrived(&place, "k", 1).await, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_service_costs_no_more_than_the_timeout_and_nothing_comes_late() {
    for ordered in [true, false] {
        let place = Place::start(Kind::Fake).await;
        let mut config = place.config(ordered);
        (config.timeout, config.connect_timeout) = (Duration::from_secs(6), Duration::from_secs(3));
        config.batch_messages = 1;
        let sink = place.bind(&config, Format::Plain);
        assert_eq!(kinds(&sink.publish(&[keyed(0, "k")]).await), ["accepted"]);
        place.proxy.set(Mode::Blackhole);
        let batch: Vec<_> = (1..200).map(|number| keyed(number, "k")).collect();
        // One by one they would take a quarter of an hour.
        let outcomes = tokio::time::timeout(PATIENCE, sink.publish(&batch)).await.expect("it costs one timeout");
        assert_eq!(outcomes[0].kind(), "unknown");
        assert_eq!(outcomes[198].kind(), "busy", "it was surely not sent");
        // Each of the two leaves the connection behind by itself.
        if !ordered {
            assert!(sink.ready().await.is_err());
        }
        // The black hole keeps what it swallowed, so the old connection is of no use any more.
        place.proxy.set(Mode::Pass);
        if !ordered {
            eventually(PATIENCE, || async { sink.ready().await.is_ok() }).await;
        }
        eventually(PATIENCE, || async { kinds(&sink.publish(&[keyed(1_000, "k")]).await) == ["accepted"] }).await;
        assert_eq!(place.arrivals().await.len(), 2, "what was given up did not come later");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s21_topics_from_data_are_checked_and_fail_alone() {
    let place = Place::start(Kind::Fake).await;
    let topics = Client::new(place.fake().port()).expect("a client");
    topics.create_topic("events-order.placed").await.expect("a topic");
    let client = PubsubClient::new(&place.config(false)).expect("a client");
    let bind = |destination: &str| client.bind(Binding::to(destination.parse().expect("good"))).expect("a sink");
    let sink = bind("events-{topic}");
    let mut batch: Vec<_> = (0..4).map(message).collect();
    batch[1].topic = "../subscriptions/x".into();
    batch[2].topic = "nobody.made.this".into();
    assert_eq!(kinds(&sink.publish(&batch).await), ["accepted", "unsendable", "retry", "accepted"]);
    sink.ready().await.expect("the service answers");

    let full = bind(&format!("projects/{PROJECT}/topics/events-order.placed"));
    assert_eq!(kinds(&full.publish(&[message(1)]).await), ["accepted"]);
    full.ready().await.expect("the topic is there");
    place.fake().look(Code::PermissionDenied);
    full.ready().await.expect("who may only publish is not kept from it");
    place.fake().look(Code::Unavailable);
    let why = full.ready().await.expect_err("the service does not answer");
    assert!(why.contains("UNAVAILABLE"), "{why}");
    place.fake().look(Code::Ok);
    let missing = bind("missing-topic").ready().await.expect_err("the topic is not there");
    assert!(missing.contains("NOT_FOUND"), "{missing}");
    let topics: Vec<_> = place.fake().requests().into_iter().map(|request| request.topic).collect();
    assert!(topics.iter().all(|topic| topic.starts_with(&format!("projects/{PROJECT}/topics/events-"))), "{topics:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_few_requests_without_keys() {
    let place = Place::start(Kind::Fake).await;
    let sink = place.sink(Format::Plain, false);
    let batch: Vec<_> = (0..sink.max_batch()).map(message).collect();
    assert_eq!(kinds(&sink.publish(&batch).await), vec!["accepted"; batch.len()]);
    let requests = place.fake().requests().len();
    assert!((10..=100).contains(&requests), "{requests} requests of up to 100 messages");
}
