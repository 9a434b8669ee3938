//! What only the receiver of webhooks promises: whom it believes, and what it answers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use postrider::inbox::{Inbox, MemoryGuard};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, RequestBuilder};
use sha2::Sha256;
use testkit::eventually;
use uuid::Uuid;

use crate::support::{LARGEST, PATIENCE, SECRET, Scene, Webhook, delivery};

crate::promises::promises!(Webhook);

const OTHER: &str = "whsec_YW5vdGhlciBhbm90aGVyIGFub3RoZXIgYW5vdGhlcg==";
const BODY: &str = "{\"number\":1}";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn sign(secret: &str, id: &str, timestamp: u64, body: &str) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a secret")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

fn request(scene: &Scene<Webhook>, event: Uuid, timestamp: u64, signature: &str, body: &str) -> RequestBuilder {
    Client::new()
        .post(scene.broker.url())
        .header("webhook-id", event.to_string())
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(body.to_owned())
}

async fn status(request: RequestBuilder) -> u16 {
    request.send().await.expect("an answer").status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_what_is_not_signed_as_it_is_just_now_is_refused_and_not_handled() {
    let scene = Scene::<Webhook>::start().await;
    let running = scene.run(0);
    let (event, other) = (Uuid::now_v7(), Uuid::now_v7());
    let (now, id) = (now(), event.to_string());
    let good = sign(SECRET, &id, now, BODY);
    let old = now - 301;
    let ahead = now + 330;
    for (what, signed) in [
        ("another body", request(&scene, event, now, &good, "{\"number\":2}")),
        ("another event", request(&scene, other, now, &good, BODY)),
        ("another time", request(&scene, event, now - 1, &good, BODY)),
        ("another secret", request(&scene, event, now, &sign(OTHER, &id, now, BODY), BODY)),
        ("an old time", request(&scene, event, old, &sign(SECRET, &id, old, BODY), BODY)),
        ("a time to come", request(&scene, event, ahead, &sign(SECRET, &id, ahead, BODY), BODY)),
        ("an empty signature", request(&scene, event, now, "v1,", BODY)),
        ("no signature", Client::new().post(scene.broker.url()).header("webhook-id", &id).body(BODY)),
    ] {
        assert_eq!(status(signed).await, 401, "{what}");
    }
    assert_eq!(scene.inbox.begun(), 0);
    assert_eq!(status(request(&scene, event, now, &good, BODY)).await, 204);
    assert_eq!(status(request(&scene, event, now, &good, BODY)).await, 204, "a duplicate is well received");
    assert_eq!((scene.work.order(), scene.inbox.known()), (vec![event], 1));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_event_id_or_is_too_large_is_refused_for_good() {
    let scene = Scene::<Webhook>::start().await;
    let running = scene.run(0);
    let now = now();
    let signature = sign(SECRET, "msg_7", now, BODY);
    let unnamed = Client::new().post(scene.broker.url()).header("webhook-id", "msg_7");
    let unnamed = unnamed.header("webhook-timestamp", now).header("webhook-signature", signature).body(BODY);
    assert_eq!(status(unnamed).await, 400);
    let bare = Client::new().post(scene.broker.url()).body(BODY);
    assert_eq!(
        status(bare).await,
        401,
        "a mistake of the sender's settings, which can be mended, is not a dead message"
    );
    let event = Uuid::now_v7();
    for (size, expected) in [(LARGEST, 204), (LARGEST + 1, 413)] {
        let body = format!("{BODY}{}", " ".repeat(size - BODY.len()));
        let signature = sign(SECRET, &event.to_string(), now, &body);
        assert_eq!(status(request(&scene, event, now, &signature, &body)).await, expected, "{size}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_secrets_change_without_a_gap() {
    // First receivers learn the new secret, then the relay signs with both, then only with the new one.
    for (secrets, keys) in
        [(&[SECRET, OTHER][..], &[SECRET][..]), (&[SECRET], &[OTHER, SECRET]), (&[SECRET, OTHER], &[OTHER])]
    {
        let mut scene = Scene::<Webhook>::start().await;
        scene.broker.secrets = secrets.iter().map(ToString::to_string).collect();
        scene.broker.keys = keys.iter().map(ToString::to_string).collect();
        let events = scene.outbox.enqueue(3).await;
        let (_relay, running) = (scene.relay(), scene.run(0));
        scene.each_once(&events).await;
        assert_eq!(scene.inbox.begun(), 3, "each at the first attempt");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_progress_is_asked_for_again_later() {
    let scene = Scene::<Webhook>::start().await;
    let running = scene.run(0);
    let event = Uuid::now_v7();
    let held = scene.inbox.inner.begin(&delivery(event)).await.expect("the inbox answers");
    let _guard: MemoryGuard = held.first().expect("nobody has had it");
    let now = now();
    let signature = sign(SECRET, &event.to_string(), now, BODY);
    let answer = request(&scene, event, now, &signature, BODY).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 503);
    assert_eq!(answer.headers()[RETRY_AFTER], "1");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r64_a_handler_that_takes_longer_than_the_relay_waits_comes_to_its_end() {
    let mut scene = Scene::<Webhook>::start().await;
    scene.broker.timeout = Duration::from_secs(1);
    scene.work.close();
    let events = scene.outbox.enqueue(1).await;
    let (_relay, running) = (scene.relay(), scene.run(0));
    // The relay has hung up and asked again.
    eventually(PATIENCE, || async { !scene.inbox.in_progress().is_empty() }).await;
    scene.work.open();
    scene.each_once(&events).await;
    assert_eq!(scene.work.tries(events[0]), 1, "it was not begun anew");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_a_handler_whose_request_is_gone() {
    let mut scene = Scene::<Webhook>::start().await;
    scene.broker.timeout = Duration::from_secs(1);
    scene.work.close();
    let events = scene.outbox.enqueue(1).await;
    let (relay, running) = (scene.relay(), scene.run(0));
    eventually(PATIENCE, || async { !scene.inbox.in_progress().is_empty() }).await;
    drop(relay);
    let work = scene.work.clone();
    // By then a receiver that does not wait has ended.
    let opens = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        work.open();
    });
    running.stop().await;
    assert_eq!(scene.work.effects(events[0]), 1);
    opens.await.expect("it opened");
}
