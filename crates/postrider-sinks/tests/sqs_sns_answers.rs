//! The sinks sqs and sns with Amazon's own client against services that a test plays: what fails in parts, what is
//! throttled, ill, slow or lost on the way means the same for both.
#![cfg(all(feature = "sqs", feature = "sns", feature = "http"))]

#[path = "support/aws.rs"]
mod aws;
#[path = "support/aws_script.rs"]
mod aws_script;
mod support;

use std::time::{Duration, Instant};

use aws_script::{Api, BOTH, Fate, http};
use postrider_core::{ClaimedMessage, Outcome, Payload, Sink};
use postrider_sinks::{SqsClient, SqsConfig};
use support::{Received, Reply, Server};
use testkit::sinks::{message, of_payload};

/// Longer than a machine stands still.
const PATIENT: Duration = Duration::from_secs(60);

/// For what is not answered.
const IMPATIENT: Duration = Duration::from_secs(4);

fn batch(count: usize) -> Vec<ClaimedMessage> {
    (0..count).map(message).collect()
}

fn kinds(outcomes: &[Outcome]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::kind).collect()
}

/// Publishes so many messages to a service that behaves so; the outcomes, and what it received.
async fn publish(
    api: Api,
    count: usize,
    behave: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> (Vec<Outcome>, Vec<Received>) {
    publish_within(PATIENT, api, count, behave).await
}

/// The same with so much time.
async fn publish_within(
    limit: Duration,
    api: Api,
    count: usize,
    behave: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> (Vec<Outcome>, Vec<Received>) {
    let server = Server::start(behave).await;
    let outcomes = api.sink(server.address.port(), false, limit).publish(&batch(count)).await;
    assert!(!format!("{outcomes:?}").contains("canary"), "no text of the service is passed on: {outcomes:?}");
    (outcomes, server.take())
}

#[tokio::test]
async fn r59_what_fails_in_parts_is_told_apart() {
    const FATES: [(Fate<'static>, &str); 10] = [
        (Some(Ok(())), "accepted"),
        (Some(Err(("InvalidMessageContents", true))), "reject"),
        (Some(Err(("ThrottlingException", true))), "retry"),
        (Some(Err(("KMS.DisabledException", true))), "retry"),
        (Some(Err(("InternalError", false))), "retry"),
        (None, "unknown"),
        (Some(Err(("AccessDenied", true))), "retry"),
        // Nobody knows whether an operator could mend it.
        (Some(Err(("SomethingNew", true))), "retry"),
        (Some(Err(("AWS.SimpleQueueService.NonExistentQueue", true))), "retry"),
        (Some(Ok(())), "accepted"),
    ];
    for api in BOTH {
        let (outcomes, received) =
            publish(api, 10, move |request| api.answer(&api.sent(request), &FATES.map(|(fate, _)| fate))).await;
        assert_eq!(kinds(&outcomes), FATES.map(|(_, kind)| kind), "{api:?} {outcomes:?}");
        assert_eq!(received.len(), 1);
    }
}

#[tokio::test]
async fn a_whole_request_that_fails_is_made_once_and_kills_nothing_that_an_operator_can_mend() {
    for (status, code, text, expected) in [
        (400, "ThrottlingException", "Rate exceeded", "retry"),
        (403, "Throttled", "canary", "retry"),
        (400, "OverLimit", "canary", "retry"),
        (400, "QueueDoesNotExist", "canary", "retry"),
        (404, "NotFound", "canary", "retry"),
        (403, "AccessDenied", "canary", "retry"),
        (403, "AuthorizationError", "canary", "retry"),
        (403, "ExpiredToken", "canary", "retry"),
        (403, "InvalidClientTokenId", "canary", "retry"),
        (403, "SignatureDoesNotMatch", "canary", "retry"),
        (400, "KMSAccessDenied", "canary", "retry"),
        (400, "InvalidAddress", "canary", "retry"),
        (503, "ServiceUnavailable", "canary", "retry"),
        (500, "InternalError", "canary", "unknown"),
        (502, "BadGateway", "canary", "unknown"),
        (504, "GatewayTimeout", "canary", "unknown"),
    ] {
        for api in BOTH {
            let (outcomes, received) = publish(api, 2, move |_| api.refuse(status, code, text)).await;
            assert_eq!(kinds(&outcomes), [expected; 2], "{api:?} {status} {code}: {outcomes:?}");
            assert_eq!(received.len(), 1, "{api:?} {status} {code}: the library tries nothing again by itself");
        }
    }
}

#[tokio::test]
async fn a_destination_that_the_service_does_not_like_is_the_operators_and_no_messages_fault() {
    for (code, text) in [
        ("InvalidParameter", "Invalid parameter: TopicArn"),
        ("InvalidParameter", "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements"),
        ("InvalidParameter", "Invalid parameter: The MessageGroupId parameter is required for FIFO topics"),
        ("InvalidParameterValue", "The queue should either have ContentBasedDeduplication enabled or an id"),
        ("MissingParameter", "The request must contain the parameter MessageGroupId."),
    ] {
        for api in BOTH {
            let (outcomes, _) = publish(api, 2, move |_| api.refuse(400, code, text)).await;
            assert_eq!(kinds(&outcomes), ["retry"; 2], "{api:?} {code} {text}: {outcomes:?}");
        }
    }
}

#[tokio::test]
async fn r59_a_request_that_is_refused_for_what_is_in_it_is_made_again_for_each_message() {
    for (code, text) in [
        ("BatchRequestTooLong", "canary"),
        ("InvalidMessageContents", "canary"),
        ("InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than 1 byte"),
        ("InvalidParameter", "Invalid parameter: Message too long"),
    ] {
        for api in BOTH {
            let guilty = message(1).payload;
            let (outcomes, received) = publish(api, 3, move |request| {
                let sent = api.sent(request);
                match sent.iter().any(|sent| sent.body.as_bytes() == guilty.as_bytes()) {
                    true => api.refuse(400, code, text),
                    false => api.take(request),
                }
            })
            .await;
            assert_eq!(kinds(&outcomes), ["accepted", "reject", "accepted"], "{api:?} {code}: {outcomes:?}");
            assert_eq!(received.len(), 4);
        }
    }
}

#[tokio::test]
async fn r50_an_answer_that_is_lost_or_cannot_be_read_is_unknown_and_nothing_is_sent_twice() {
    type Behaviour = fn(Api, &Received) -> Reply;
    let cases: [(&str, Behaviour); 8] = [
        ("reset after the request", |_, _| Reply::Reset(Vec::new())),
        ("closed after the request", |_, _| Reply::Close(Vec::new())),
        ("reset within the answer", |_, _| Reply::Reset(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{".to_vec())),
        ("closed within the answer", |_, _| Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n<".to_vec())),
        ("no answer in time", |_, _| Reply::Silence),
        ("not its format", |_, _| http(200, "<html>canary</html>")),
        ("no HTTP", |_, _| Reply::Close(b"canary canary canary\r\n\r\n".to_vec())),
        ("drips", |_, _| {
            Reply::Drip(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n".to_vec(), Duration::from_millis(200))
        }),
    ];
    for (case, behave) in cases {
        for api in BOTH {
            let begun = Instant::now();
            let limit = if ["no answer in time", "drips"].contains(&case) { IMPATIENT } else { PATIENT };
            let (outcomes, received) = publish_within(limit, api, 2, move |request| behave(api, request)).await;
            assert_eq!(kinds(&outcomes), ["unknown"; 2], "{api:?} {case}: {outcomes:?}");
            assert!(begun.elapsed() < PATIENT / 2, "{api:?} {case}: {:?}", begun.elapsed());
            assert_eq!(received.len(), 1, "{api:?} {case}");
        }
    }
}

#[tokio::test]
async fn a_slow_answer_within_the_time_limit_is_an_answer() {
    for api in BOTH {
        let (outcomes, _) = publish(api, 2, move |request| match api.take(request) {
            Reply::Bytes(bytes) => Reply::After(Duration::from_millis(700), bytes),
            other => other,
        })
        .await;
        assert_eq!(outcomes, [Outcome::Accepted, Outcome::Accepted], "{api:?}");
    }
}

#[tokio::test]
async fn a_connection_that_the_service_has_closed_meanwhile_costs_nothing() {
    for api in BOTH {
        let server = Server::start(move |request| match api.take(request) {
            Reply::Bytes(bytes) => Reply::Close(bytes),
            other => other,
        })
        .await;
        let sink = api.sink(server.address.port(), false, PATIENT);
        for number in 0..20 {
            let outcomes = sink.publish(&[message(number)]).await;
            assert_eq!(outcomes, [Outcome::Accepted], "{api:?} {number}");
        }
        assert_eq!(server.take().len(), 20);
    }
}

#[tokio::test]
async fn where_order_is_kept_nothing_of_a_group_overtakes_what_failed() {
    for api in BOTH {
        let failing = message(2).payload;
        let server = Server::start(move |request| {
            let sent = api.sent(request);
            let fate = |body: &str| match body.as_bytes() == failing.as_bytes() {
                true => Some(Err(("ThrottlingException", false))),
                false => Some(Ok(())),
            };
            let fates: Vec<Fate<'_>> = sent.iter().map(|sent| fate(&sent.body)).collect();
            api.answer(&sent, &fates)
        })
        .await;
        let sink = api.sink(server.address.port(), true, PATIENT);
        let mut batch = batch(6);
        for (at, message) in batch.iter_mut().enumerate() {
            message.key = Some(["even", "odd"][at % 2].into());
        }
        let outcomes = sink.publish(&batch).await;
        // 2 failed, so 4, which is of its group, was not sent.
        assert_eq!(kinds(&outcomes), ["accepted", "accepted", "retry", "accepted", "retry", "accepted"], "{api:?}");
        let requests: Vec<_> = server.take().iter().map(|request| api.sent(request)).collect();
        let bodies: Vec<Vec<&str>> =
            requests.iter().map(|sent| sent.iter().map(|sent| sent.body.as_str()).collect()).collect();
        let body = |number: usize| format!("{{\"number\":{number}}}");
        assert_eq!(bodies, [vec![body(0), body(1)], vec![body(2), body(3)], vec![body(5)]], "{api:?}");
        let first = &requests[0][0];
        assert_eq!(first.group.as_deref(), Some("even"));
        assert_eq!(first.deduplication.as_deref(), Some(batch[0].id.to_string().as_str()));
    }
}

#[tokio::test]
async fn a_queue_whose_address_is_not_told_in_time_got_nothing() {
    let server = Server::start(|_| Reply::Silence).await;
    let mut config = SqsConfig::default();
    config.aws = aws::access(server.address.port());
    (config.timeout, config.connect_timeout) = (Duration::from_secs(1), Duration::from_secs(1));
    let sink = SqsClient::new(&config).expect("a client").sink("orders".parse().expect("one")).expect("a sink");
    let outcomes = sink.publish(&batch(2)).await;
    let unsent = |outcome: &Outcome| matches!(outcome, Outcome::Retry { why, .. } if why.contains("nothing was sent"));
    assert!(outcomes.iter().all(unsent), "{outcomes:?}");
}

/// What Amazon's client finds is in the environment, which a test cannot change for itself: so this runs `in_a_child`.
#[test]
fn without_credentials_or_region_nothing_is_sent_and_the_operator_is_told_why() {
    let home = tempfile::tempdir().expect("a directory");
    let config = home.path().join("config");
    // A program that gives no credentials; and the machine's own are not asked for.
    std::fs::write(&config, "[profile broken]\ncredential_process = /bin/false canary-argument\n").expect("written");
    let ours = std::env::vars().filter(|(name, _)| !name.starts_with("AWS_"));
    let child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["in_a_child", "--exact", "--ignored", "--nocapture"])
        .env_clear()
        .envs(ours)
        .env("HOME", home.path())
        .env("AWS_CONFIG_FILE", &config)
        .env("AWS_SHARED_CREDENTIALS_FILE", home.path().join("none"))
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .output()
        .expect("it ran");
    let said = [child.stdout, child.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
#[ignore = "another test runs it in an environment of its own"]
async fn in_a_child() {
    let server = Server::start(|_| http(200, "{}")).await;
    for (profile, region, expected) in [
        (None, Some(aws::REGION), "there are no credentials that work"),
        (Some("broken"), Some(aws::REGION), "there are no credentials that work"),
        (Some("missing"), Some(aws::REGION), "there are no credentials that work"),
        (None, None, "there is no region"),
    ] {
        let mut config = SqsConfig::default();
        config.aws = aws::access(server.address.port());
        if region.is_some() {
            (config.aws.access_key_id, config.aws.secret_access_key) = (None, None);
        }
        (config.aws.profile, config.aws.region) = (profile.map(str::to_owned), region.map(str::to_owned));
        let destination = server.url("/123456789012/orders").parse().expect("a destination");
        let sink = SqsClient::new(&config).expect("a client").sink(destination).expect("a sink");
        let outcomes = sink.publish(&batch(1)).await;
        let [Outcome::Retry { why, .. }] = outcomes.as_slice() else { panic!("{profile:?} {region:?} {outcomes:?}") };
        assert!(why.contains("nothing was sent") && why.contains(expected), "{profile:?} {region:?}: {why}");
        let unready = sink.ready().await.expect_err("not ready");
        assert!(unready.contains(expected), "{profile:?} {region:?}: {unready}");
    }
    assert!(server.take().is_empty());
}

#[tokio::test]
async fn a_request_has_no_more_bytes_than_the_service_takes() {
    for (api, bytes) in [(Api::Sqs, 300_000), (Api::Sns, 75_000)] {
        let server = Server::start(move |request| api.take(request)).await;
        let body = format!("\"{}\"", "x".repeat(bytes));
        let batch: Vec<_> = (0..10).map(|_| of_payload(Payload::Json(body.clone()))).collect();
        let outcomes = api.sink(server.address.port(), false, PATIENT).publish(&batch).await;
        assert_eq!(kinds(&outcomes), ["accepted"; 10], "{api:?}");
        // A service that is asked for more refuses it, so that each would be sent alone.
        let mut counts: Vec<_> = server.take().iter().map(|request| api.sent(request).len()).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 3, 3, 3], "{api:?}");
    }
}
