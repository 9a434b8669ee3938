//! R55: what Kafka's errors mean, and that the sink works on after each of them. All of it needs faults on command.
#![cfg(feature = "kafka")]

mod kafka_support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_support::{PATIENCE, Scene, kinds, messages, sink};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use postrider_core::{Outcome, Payload, Sink};
use postrider_sinks::Format;
use rdkafka::types::{RDKafkaApiKey::Produce, RDKafkaRespErr as Error};
use testkit::brokers::kafka::REAL;
use testkit::sinks::{message, of_payload};
use testkit::{eventually, quickly};
use tokio::time::timeout;

/// A hundred messages end together, and one by one they would take much longer.
const LATEST: Duration = Duration::from_secs(60);

/// A scene on the mock cluster, or nothing on a real broker.
async fn faulty(partitions: i32) -> Option<Scene> {
    let scene = Scene::new(partitions).await;
    match scene.kafka.is_real() {
        true => {
            println!("left out: {REAL} names a real broker, which has no faults on command");
            None
        }
        false => Some(scene),
    }
}

fn why(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Retry { why, .. } | Outcome::Unknown(why) | Outcome::Reject(why) | Outcome::Unsendable(why) => why,
        other => panic!("{other:?} has no text"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r55_a_topic_that_is_missing_is_not_made_and_its_messages_wait_for_it() {
    let Some(scene) = faulty(1).await else { return };
    let topic = format!("{}-late", scene.topic);
    let sink = sink(&scene.impatient(), &topic, Format::Plain);
    for _ in 0..2 {
        let outcomes = sink.publish(&messages(2)).await;
        assert_eq!(kinds(&outcomes), ["retry", "retry"], "{outcomes:?}");
        assert!(why(&outcomes[0]).contains("no such topic"), "{outcomes:?}");
    }
    assert!(sink.ready().await.expect_err("no topic").contains("no such topic"));
    scene.kafka.create_topic(&topic, 1).await.expect("a topic");
    eventually(PATIENCE, || async { sink.publish(&messages(1)).await == [Outcome::Accepted] }).await;
    assert_eq!(sink.ready().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn r59_what_cannot_be_given_for_now_holds_back_the_rest_of_its_key_in_the_call() {
    let Some(scene) = faulty(1).await else { return };
    let (prefix, good) = scene.topic.split_at(10);
    let sink = sink(&scene.impatient(), &format!("{prefix}{{topic}}"), Format::Plain);
    let mut batch = messages(3);
    batch.iter_mut().for_each(|message| message.topic = good.to_owned());
    batch[0].topic = format!("{good}-missing");
    batch[2].key = Some("another".into());
    assert_eq!(kinds(&sink.publish(&batch[..1]).await), ["retry"], "librdkafka knows that it is missing");
    let outcomes = sink.publish(&batch).await;
    assert_eq!(kinds(&outcomes), ["retry", "retry", "accepted"], "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r55_a_message_that_the_broker_finds_too_large_is_rejected_and_those_beside_it_are_not() {
    let Some(scene) = faulty(1).await else { return };
    let mut config = scene.config();
    config.linger = Duration::from_millis(100);
    let sink = sink(&config, &scene.topic, Format::Plain);
    assert_eq!(sink.publish(&messages(1)).await, [Outcome::Accepted]);
    let batch = messages(5);
    // The request with all five, and then the first one alone.
    scene.kafka.fail(Produce, vec![Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE; 2]).expect("it fails");
    let outcomes = sink.publish(&batch).await;
    assert_eq!(kinds(&outcomes), ["reject", "accepted", "accepted", "accepted", "accepted"], "{outcomes:?}");
    let ids = scene.arrived(&batch[1..]).await;
    assert!(!ids.contains(&batch[0].id));
    scene.kafka.fail(Produce, vec![Error::RD_KAFKA_RESP_ERR_INVALID_RECORD; 2]).expect("it fails");
    assert_eq!(kinds(&sink.publish(&messages(1)).await), ["reject"]);
    assert_eq!(sink.publish(&messages(1)).await, [Outcome::Accepted], "the sink works on");
}

#[tokio::test(flavor = "multi_thread")]
async fn r59_what_was_refused_with_others_is_sent_alone_while_the_rest_still_waits() {
    let Some(scene) = faulty(1).await else { return };
    let (prefix, good) = scene.topic.split_at(10);
    let stuck = format!("{good}-stuck");
    scene.kafka.create_topic(&format!("{prefix}{stuck}"), 1).await.expect("a topic");
    let error = Error::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
    scene.kafka.topic_error(&format!("{prefix}{stuck}"), error).expect("it has no leader");
    let mut config = scene.impatient();
    config.linger = Duration::from_millis(100);
    let sink = sink(&config, &format!("{prefix}{{topic}}"), Format::Plain);
    let mut batch = messages(6);
    for (at, message) in batch.iter_mut().enumerate() {
        message.topic = if at % 2 == 0 { good.to_owned() } else { stuck.clone() };
    }
    assert_eq!(sink.publish(&batch[..1]).await, [Outcome::Accepted]);
    scene.kafka.fail(Produce, vec![Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]).expect("it fails");
    let outcomes = sink.publish(&batch).await;
    let expected = ["accepted", "retry", "accepted", "retry", "accepted", "retry"];
    assert_eq!(kinds(&outcomes), expected, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r55_who_may_not_write_is_told_and_may_later() {
    let Some(scene) = faulty(1).await else { return };
    let sink = scene.sink();
    scene.kafka.fail(Produce, vec![Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]).expect("it fails");
    let outcomes = sink.publish(&messages(1)).await;
    assert!(matches!(&outcomes[0], Outcome::Retry { why, .. } if why.contains("right to write")), "{outcomes:?}");
    eventually(PATIENCE, || async { sink.publish(&messages(1)).await == [Outcome::Accepted] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r55_too_few_replicas_before_the_write_is_a_retry_and_after_it_unknown() {
    let Some(scene) = faulty(1).await else { return };
    let (impatient, patient) = (sink(&scene.impatient(), &scene.topic, Format::Plain), scene.sink());
    for (error, expected, text) in [
        (Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, "retry", "in sync"),
        (Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, "unknown", "too few replicas"),
        (Error::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, "unknown", "did not confirm"),
    ] {
        scene.kafka.fail(Produce, vec![error; 1_000]).expect("it fails");
        let outcomes = impatient.publish(&messages(1)).await;
        assert_eq!(kinds(&outcomes), [expected], "{outcomes:?}");
        assert!(why(&outcomes[0]).contains(text), "{outcomes:?}");
        scene.kafka.forgive(Produce).expect("it works");
        // What passes within the time is sent again by librdkafka itself.
        scene.kafka.fail(Produce, vec![error; 2]).expect("it fails");
        assert_eq!(patient.publish(&messages(1)).await, [Outcome::Accepted], "{error:?}");
    }
}

#[tokio::test]
async fn r55_a_producer_with_a_fatal_error_is_replaced() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let Some(scene) = faulty(1).await else { return };
    let sink = scene.sink();
    assert_eq!(sink.publish(&messages(1)).await, [Outcome::Accepted]);
    scene.kafka.fail(Produce, vec![Error::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]).expect("it fails");
    let lost = messages(3);
    let outcomes = sink.publish(&lost).await;
    assert_eq!(kinds(&outcomes), ["unknown"; 3], "{outcomes:?}");
    assert_eq!(sink.publish(&lost).await, vec![Outcome::Accepted; 3], "the next call has a new producer");
    let replaced = recorder.snapshotter().snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
        let ours = key.key().name() == "postrider_kafka_producer_replacements_total";
        ours.then_some(value)
    });
    assert_eq!(replaced, Some(DebugValue::Counter(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_waited_for() {
    let scene = Scene::new(3).await;
    let mut config = scene.impatient();
    config.options = [("queue.buffering.max.messages".to_owned(), "20".to_owned())].into();
    config.linger = Duration::ZERO;
    let sink = sink(&config, &scene.topic, Format::Plain);
    assert_eq!(sink.publish(&messages(1)).await, [Outcome::Accepted]);
    let batch = messages(100);
    assert_eq!(sink.publish(&batch).await, vec![Outcome::Accepted; 100]);
    scene.arrived(&batch).await;
    if scene.kafka.is_real() {
        return;
    }
    scene.kafka.stop().expect("it stops");
    let outcomes = sink.publish(&batch).await;
    assert_eq!(kinds(&outcomes)[..20], ["unknown"; 20], "{outcomes:?}");
    assert_eq!(kinds(&outcomes)[20..], ["busy"; 80], "nothing was sent, and no attempt is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_ends_in_time_while_the_broker_is_down_or_silent() {
    let Some(scene) = faulty(1).await else { return };
    let sink = sink(&scene.impatient(), &scene.topic, Format::Plain);
    let config = scene.impatient();
    for placed in [false, true] {
        scene.kafka.stop().expect("it stops");
        let outcomes = timeout(LATEST, sink.publish(&messages(100))).await.expect("in time");
        let expected = if placed { "unknown" } else { "retry" };
        assert_eq!(kinds(&outcomes), vec![expected; 100], "{:?}", outcomes[0]);
        // Several routes may ask at the same time, and each has an answer in time.
        quickly(config.connect_timeout * 3 / 2, || async {
            let (one, two, three) = tokio::join!(sink.ready(), sink.ready(), sink.ready());
            assert!(one.is_err() && two.is_err() && three.is_err());
        })
        .await;
        scene.kafka.restart().expect("it starts");
        eventually(PATIENCE, || async { sink.publish(&messages(1)).await == [Outcome::Accepted] }).await;
    }
    scene.kafka.silence().expect("it is silent");
    let outcomes = timeout(LATEST, sink.publish(&messages(100))).await.expect("in time");
    assert_eq!(kinds(&outcomes), ["unknown"; 100]);
    assert!(!why(&outcomes[0]).contains("reported nothing"), "librdkafka's report came first: {outcomes:?}");
}

/// The mock cluster takes duplicates; what is checked is that nothing overtakes at its first arrival.
#[tokio::test(flavor = "multi_thread")]
async fn r55_order_is_kept_while_the_broker_goes_and_comes_back() {
    let Some(scene) = faulty(3).await else { return };
    let config = scene.config();
    let sink = sink(&config, &scene.topic, Format::Plain);
    let mut sent = messages(1_000);
    for (at, message) in sent.iter_mut().enumerate() {
        message.key = Some(format!("key-{}", at % 7));
    }
    assert_eq!(sink.publish(&messages(1)).await, [Outcome::Accepted]);
    let publishing = tokio::spawn({
        let (sink, sent) = (sink.clone(), sent.clone());
        async move { sink.publish(&sent).await }
    });
    scene.kafka.stop().expect("it stops");
    scene.kafka.restart().expect("it starts");
    assert_eq!(publishing.await.expect("no panic"), vec![Outcome::Accepted; sent.len()]);
    let mut ids = scene.arrived(&sent).await;
    let mut seen = std::collections::HashSet::new();
    ids.retain(|id| seen.insert(*id));
    for key in 0..7 {
        let expected: Vec<_> = sent.iter().skip(key).step_by(7).map(|message| message.id).collect();
        let arrived: Vec<_> = ids.iter().copied().filter(|id| expected.contains(id)).collect();
        assert_eq!(arrived, expected, "key-{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_share_few_requests() {
    let Some(scene) = faulty(3).await else { return };
    let sink = scene.sink();
    assert_eq!(sink.max_batch(), 1_000);
    assert_eq!(sink.publish(&messages(1)).await, [Outcome::Accepted]);
    let before = scene.kafka.requests(Produce).expect("counted");
    let started = Instant::now();
    let calls = (0..20).map(|call| {
        let sink: Arc<dyn Sink> = sink.clone();
        tokio::spawn(async move {
            let mut batch = messages(1_000);
            for (at, message) in batch.iter_mut().enumerate() {
                message.key = Some(format!("{call}-{at}"));
            }
            // What finds the producer's queue full on a slow machine is sent again, as a dispatcher would.
            while !batch.is_empty() {
                let outcomes = sink.publish(&batch).await;
                let full = |outcome: &Outcome| matches!(outcome, Outcome::Busy { .. });
                assert!(outcomes.iter().all(|outcome| full(outcome) || *outcome == Outcome::Accepted));
                batch = batch.into_iter().zip(outcomes).filter(|(_, said)| full(said)).map(|(row, _)| row).collect();
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("every message is accepted");
    }
    let requests = scene.kafka.requests(Produce).expect("counted") - before;
    println!("20,000 messages in {:?} and {requests} requests", started.elapsed());
    assert!(requests < 1_000, "{requests}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_has_key_and_time_and_an_empty_key_is_none() {
    let scene = Scene::new(3).await;
    let sink = scene.sink();
    let mut batch = messages(3);
    batch[1].key = Some(String::new());
    batch[2].key = None;
    batch.push(of_payload(Payload::Bytes(Vec::new())));
    assert_eq!(sink.publish(&batch).await, vec![Outcome::Accepted; 4]);
    scene.arrived(&batch).await;
    let records = scene.reader.records();
    let of = |at: usize| {
        let id = batch[at].id.to_string();
        records.iter().find(|record| record.headers.get("event_id") == Some(&id)).expect("it arrived")
    };
    assert_eq!(of(0).key.as_deref(), Some(&b"order-7"[..]));
    assert_eq!((&of(1).key, &of(2).key), (&None, &None));
    assert_eq!(of(0).timestamp, Some(1_700_000_000_123));
    assert_eq!(of(3).value.as_deref(), Some(&b""[..]), "an empty value deletes nothing from a compacted topic");
    // Java's murmur2 of "order-7", without its sign, modulo 3.
    assert_eq!(of(0).partition, PARTITION_OF_ORDER_7);
}

const PARTITION_OF_ORDER_7: i32 = 1;

#[tokio::test(flavor = "multi_thread")]
async fn topics_come_from_data_and_bad_names_are_unsendable() {
    let scene = Scene::new(1).await;
    let (prefix, name) = scene.topic.split_at(10);
    let sink = sink(&scene.config(), &format!("{prefix}{{topic}}"), Format::Plain);
    let (mut good, mut bad) = (message(1), message(2));
    good.topic = name.to_owned();
    bad.topic = "no topic/at all".into();
    let outcomes = sink.publish(&[bad, good.clone()]).await;
    assert_eq!(kinds(&outcomes), ["unsendable", "accepted"], "{outcomes:?}");
    scene.arrived(&[good]).await;
    assert_eq!(sink.ready().await, Ok(()), "the cluster answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_does_no_harm() {
    let Some(scene) = faulty(1).await else { return };
    let sink = sink(&scene.impatient(), &scene.topic, Format::Plain);
    assert_eq!(sink.publish(&messages(1)).await, [Outcome::Accepted]);
    scene.kafka.silence().expect("it is silent");
    let cut = timeout(Duration::from_millis(50), sink.publish(&messages(500))).await;
    assert!(cut.map_or(true, |outcomes| !outcomes.contains(&Outcome::Accepted)), "there is no answer yet");
    scene.kafka.speak().expect("it speaks");
    eventually(PATIENCE, || async { sink.publish(&messages(1)).await == [Outcome::Accepted] }).await;
}
