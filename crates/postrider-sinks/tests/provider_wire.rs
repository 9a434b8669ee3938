//! What providers get, what never reaches them, and adapters that are not on any wire.
#![cfg(feature = "provider")]

mod provider_server;
mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use postrider_core::{Outcome, Payload, Sink};
use postrider_sinks::provider::{
    Adapter, CORRELATION_ID, NoopAdapter, NoopAnswer, NoopConfig, Outbound, ProviderConfig, ProviderSink,
};
use provider_server::{Api, NUMBER_ID, fine, http, send, slack_error, to};
use serde_json::{Value, json};
use support::Server;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

async fn body(api: &Api, provider: &str, recipient: &str, payload: Value) -> Value {
    assert_eq!(send(&api.sink(), to(provider, recipient, payload)).await, Outcome::Accepted);
    let mut calls = api.take();
    assert_eq!(calls.len(), 1);
    calls.remove(0).body
}

#[tokio::test]
async fn slack_gets_plain_text_that_rings_for_nobody() {
    let api = Api::start(fine).await;
    let message = to("slack", "C024BE91L", json!({ "text": "a < b & <!channel> *c*" }));
    let id = message.id.to_string();
    assert_eq!(send(&api.sink(), message).await, Outcome::Accepted);
    let expected = json!({
        "channel": "C024BE91L",
        "text": "a &lt; b &amp; &lt;!channel&gt; *c*",
        "mrkdwn": false,
        "metadata": {
            "event_type": "postrider_message",
            "event_payload": { "event_id": id, "correlation_id": "corr-1", "channel_message_id": "chan-1" },
        },
    });
    assert_eq!(api.take()[0].body, expected);
    // The provider's own fields are added, and its own text is left alone.
    let own = json!({ "text": "x", "providers": { "slack": { "text": "<!here> *hi*", "thread_ts": "1.2" }, "telegram": { "text": "no" } } });
    let body = body(&api, "slack", "C1", own).await;
    assert_eq!(
        (&body["text"], &body["thread_ts"], &body["mrkdwn"]),
        (&json!("<!here> *hi*"), &json!("1.2"), &Value::Null)
    );
    let mut message = to("slack", "C1", json!({ "text": "x" }));
    message.headers.insert(CORRELATION_ID.into(), "x".repeat(4_096));
    assert_eq!(send(&api.sink(), message).await, Outcome::Accepted);
    assert_eq!(
        api.take()[0].body["metadata"]["event_payload"]["correlation_id"],
        Value::Null,
        "it is too long for Slack"
    );
    let mut config = api.config();
    config.slack.as_mut().expect("Slack").metadata = false;
    let sink = ProviderSink::new(&config).expect("a sink");
    assert_eq!(send(&sink, to("slack", "C1", json!({ "text": "x" }))).await, Outcome::Accepted);
    assert_eq!(api.take()[0].body, json!({ "channel": "C1", "text": "x", "mrkdwn": false }));
}

#[tokio::test]
async fn telegram_gets_numbers_or_names() {
    let api = Api::start(fine).await;
    let links = json!({ "text": "Hi <b>", "links": [{ "title": "Track", "url": "https://example.com/?a=1&b=2" }] });
    let sent = body(&api, "telegram", "-1001234567890", links).await;
    assert_eq!(sent, json!({ "chat_id": -1001234567890_i64, "text": "Hi <b>\n\nTrack: https://example.com/?a=1&b=2" }));
    let own = json!({ "text": "x", "providers": { "telegram": { "text": "<b>x</b>", "parse_mode": "HTML" } } });
    let sent = body(&api, "telegram", "@news", own).await;
    assert_eq!(sent, json!({ "chat_id": "@news", "text": "<b>x</b>", "parse_mode": "HTML" }));
}

#[tokio::test]
async fn whatsapp_gets_text_or_a_template() {
    let api = Api::start(fine).await;
    let message = to("whatsapp", "4915112345678", json!({ "text": "Hi *you*" }));
    let id = message.id.to_string();
    assert_eq!(send(&api.sink(), message).await, Outcome::Accepted);
    let expected = json!({
        "messaging_product": "whatsapp", "recipient_type": "individual", "to": "4915112345678", "type": "text",
        "text": { "preview_url": false, "body": "Hi *you*" }, "biz_opaque_callback_data": id,
    });
    assert_eq!(api.take()[0].body, expected);
    let template = json!({ "name": "order_left", "language": { "code": "en" } });
    let own = json!({ "text": "x", "providers": { "whatsapp": { "type": "template", "template": template } } });
    let sent = body(&api, "whatsapp", "4915112345678", own).await;
    assert_eq!((&sent["type"], &sent["template"], &sent["text"]), (&json!("template"), &template, &Value::Null));
}

#[tokio::test]
async fn what_cannot_be_sent_is_not_and_its_neighbours_are() {
    let api = Api::start(|call| match call.recipient.as_str() {
        "C-gone" => slack_error("is_archived"),
        "C-slow" => http(429, "retry-after: 3\r\n", ""),
        _ => fine(call),
    })
    .await;
    let text = || json!({ "text": "canary" });
    let without = |header: &str| {
        let mut message = to("slack", "C1", text());
        message.headers.remove(header);
        message.key = Some("C1".into());
        message
    };
    let blob = || {
        let mut message = to("slack", "C1", text());
        message.payload = Payload::Bytes(b"\xffcanary".to_vec());
        message
    };
    let own = |provider: &str, field: &str| json!({ "text": "canary", "providers": { provider: { field: "canary" } } });
    let batch = [
        (to("slack", "C1", text()), "accepted", ""),
        (to("pigeon", "C1", text()), "unsendable", "no adapter for its provider"),
        (to("Slack", "C1", text()), "unsendable", "no adapter for its provider"),
        (without("provider"), "unsendable", "no header \"provider\""),
        (without("recipient"), "unsendable", "no header \"recipient\""),
        (to("slack", "", text()), "unsendable", "no header \"recipient\""),
        (to("slack", " ", text()), "unsendable", "\"recipient\" is blank"),
        (to("slack", "canary\n", text()), "unsendable", "control characters"),
        (to("slack", &"x".repeat(256), text()), "unsendable", "longer than 255 bytes"),
        (to("slack", "C1", json!({ "txt": "canary" })), "unsendable", "its payload is not"),
        (to("slack", "C1", json!("canary")), "unsendable", "its payload is not"),
        (blob(), "unsendable", "not JSON"),
        (to("slack", "C1", json!({ "text": "&".repeat(8_001) })), "unsendable", "longer than 40000"),
        (to("slack", "C1", own("slack", "channel")), "unsendable", "sets channel"),
        (to("slack", "C1", own("slack", "token")), "unsendable", "sets token"),
        (to("telegram", "1", own("telegram", "chat_id")), "unsendable", "sets chat_id"),
        (to("whatsapp", "1", own("whatsapp", "to")), "unsendable", "sets to"),
        (to("telegram", "canary", text()), "unsendable", "neither a chat's number nor an @name"),
        (to("slack", "C-gone", text()), "reject", "is_archived"),
        (to("slack", "C-slow", text()), "retry", "429"),
        (to("whatsapp", "1", text()), "accepted", ""),
        (to("telegram", "1", text()), "accepted", ""),
    ];
    let (messages, expected): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|(message, kind, why)| (message, (kind, why))).unzip();
    let outcomes = api.sink().publish(&messages).await;
    assert_eq!(outcomes.len(), expected.len());
    for (outcome, (kind, why)) in outcomes.iter().zip(&expected) {
        let shown = format!("{outcome:?}").replace('\\', "");
        assert!(outcome.kind() == *kind && shown.contains(why), "{kind} {why}: {shown}");
        assert!(!shown.contains("canary"), "{shown}");
    }
    assert_eq!(api.take().len(), 5, "what is unsendable is not sent");
}

#[tokio::test]
async fn the_no_op_answers_by_recipient_and_attempt_and_by_nothing_else() {
    use NoopAnswer::{Accept, Limit, Reject, Retry, Unknown};
    let mut noop = NoopConfig::default();
    noop.providers = vec!["whatsapp".into(), "slack".into()];
    noop.answers =
        BTreeMap::from([("x".to_owned(), vec![Retry, Limit, Unknown, Accept]), ("y".to_owned(), vec![Reject])]);
    noop.keep = 3;
    let mut config = ProviderConfig::default();
    config.noop = Some(noop.clone());
    let configured = ProviderSink::new(&config).expect("a sink");
    let adapter = NoopAdapter::new(&noop);
    let built = ProviderSink::builder().adapter("whatsapp", adapter.clone()).adapter("slack", adapter.clone());
    let built = built.build().expect("a sink");
    let script = ["retry", "retry", "unknown", "accepted", "accepted"];
    for sink in [&configured, &built, &configured] {
        for (attempt, kind) in (1..).zip(script) {
            let mut message = to("whatsapp", "x", json!({ "text": "canary" }));
            message.attempts = attempt;
            let outcome = send(sink, message).await;
            assert_eq!(outcome.kind(), kind);
            let after = matches!(outcome, Outcome::Retry { after: Some(after), .. } if after == Duration::from_secs(1));
            assert_eq!(after, attempt == 2);
        }
        assert_eq!(send(sink, to("slack", "y", json!({ "text": "canary" }))).await.kind(), "reject");
        assert_eq!(send(sink, to("slack", "z", json!({ "text": "canary" }))).await, Outcome::Accepted);
        assert_eq!(send(sink, to("noop", "z", json!({ "text": "canary" }))).await.kind(), "unsendable");
        assert_eq!(
            send(sink, to("slack", "z", json!("canary"))).await.kind(),
            "unsendable",
            "the shape is checked as well"
        );
    }
    assert_eq!(adapter.count(), 7);
    let last: Vec<_> = adapter
        .last()
        .into_iter()
        .map(|r| (r.provider, r.recipient, r.attempt, r.outcome, r.channel_message_id))
        .collect();
    let chan = || Some("chan-1".to_owned());
    let expected = [
        ("whatsapp".to_owned(), "x".to_owned(), 5, "accepted", chan()),
        ("slack".to_owned(), "y".to_owned(), 1, "reject", chan()),
        ("slack".to_owned(), "z".to_owned(), 1, "accepted", chan()),
    ];
    assert_eq!(last, expected);
    assert_eq!(built.ready().await, Ok(()));
}

/// What an adapter of one's own gets.
#[derive(Default)]
struct Sms {
    seen: Mutex<Vec<String>>,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl Adapter for Sms {
    async fn send(&self, outbound: &Outbound<'_>) -> Outcome {
        let Outbound { provider, recipient, payload, correlation, .. } = outbound;
        let line = format!(
            "{provider} {recipient} {:?} {:?} {:?} {:?} {}",
            payload.plain(),
            payload.for_provider("sms"),
            correlation.correlation_id,
            correlation.channel_message_id,
            correlation.attempt
        );
        self.seen.lock().expect("not poisoned").push(line);
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        match *recipient {
            "+1" => std::future::pending::<()>().await,
            "+2" => panic!("an adapter's own mistake"),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        Outcome::Accepted
    }

    async fn ready(&self) -> Result<(), String> {
        Err("not today".into())
    }
}

#[tokio::test]
async fn an_adapter_of_your_own_gets_everything_and_is_cut_off_in_time() {
    let sms = Arc::new(Sms::default());
    let mut config = ProviderConfig::default();
    (config.connect_timeout, config.timeout, config.concurrency) = (Duration::from_secs(3), Duration::from_secs(3), 2);
    let sink = ProviderSink::builder()
        .name("texts")
        .config(config.clone())
        .adapter("sms", sms.clone())
        .build()
        .expect("a sink");
    let message = to("sms", "+49", json!({ "text": "hi", "providers": { "sms": { "flash": true } } }));
    assert_eq!(send(&sink, message).await, Outcome::Accepted);
    let seen = sms.seen.lock().expect("not poisoned").remove(0);
    assert_eq!(seen, r#"sms +49 "hi" Some({"flash": Bool(true)}) Some("corr-1") Some("chan-1") 1"#);
    assert_eq!(sink.ready().await, Err("sms: not today".into()));
    assert_eq!((sink.concurrency(), sink.minds_outages()), (Some(2), false));

    let sends = (0..10).map(|_| send(&sink, to("sms", "+49", json!({ "text": "hi" }))));
    let outcomes = futures::future::join_all(sends).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Accepted), "{outcomes:?}");
    assert_eq!(sms.most.load(Ordering::SeqCst), 2, "no more at a time than concurrency says");

    let sent = send(&sink, to("sms", "+1", json!({ "text": "hi" })));
    let outcome = tokio::time::timeout(Duration::from_secs(120), sent).await.expect("it is cut off");
    assert!(matches!(&outcome, Outcome::Unknown(why) if why.contains("in time")), "{outcome:?}");

    // The dispatcher catches a panic, and the room of the message is free again.
    for _ in 0..2 {
        let sent = send(&sink, to("sms", "+2", json!({ "text": "hi" })));
        assert!(std::panic::AssertUnwindSafe(sent).catch_unwind().await.is_err());
    }
    assert_eq!(send(&sink, to("sms", "+49", json!({ "text": "hi" }))).await, Outcome::Accepted);
}

#[test]
fn each_provider_has_one_adapter() {
    let build = |names: &[&str], config: &ProviderConfig| {
        let builder = ProviderSink::builder().config(config.clone());
        names
            .iter()
            .fold(builder, |builder, name| builder.adapter(*name, Sms::default()))
            .build()
            .map_err(|problem| problem.field)
    };
    let none = ProviderConfig::default();
    let mut noop = ProviderConfig::default();
    noop.noop = Some(NoopConfig::default());
    assert_eq!(build(&[], &none).err().as_deref(), Some("noop"));
    assert_eq!(build(&["sms", "sms"], &none).err().as_deref(), Some("adapter"));
    assert_eq!(build(&["a/b"], &none).err().as_deref(), Some("adapter"));
    assert_eq!(build(&["noop"], &noop).err().as_deref(), Some("adapter"));
    let sink = build(&["sms", "slack"], &noop).expect("a sink");
    assert!(sink.minds_outages());
    assert_eq!(format!("{sink:?}"), r#"ProviderSink { name: "provider", providers: ["noop", "slack", "sms"], .. }"#);
}

/// A certificate for 127.0.0.1, and the authority that made it.
fn certificate() -> (String, TlsAcceptor) {
    let mut params = rcgen::CertificateParams::new([]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).expect("a certificate and its key");
    (authority, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn certificates_are_verified_and_private_addresses_are_asked_for() {
    let (authority, tls) = certificate();
    let ok = |_: &support::Received| http(200, "", r#"{"messages": [{"id": "x"}]}"#);
    let server = Server::start_at("127.0.0.1:0", Some(tls), ok).await;
    let api = Api::start(fine).await;
    let mut config = api.config();
    config.whatsapp.as_mut().expect("WhatsApp").endpoint = format!("https://{}", server.address);
    let outcome = send(&ProviderSink::new(&config).expect("a sink"), to("whatsapp", "1", json!({ "text": "x" }))).await;
    assert!(matches!(&outcome, Outcome::Retry { why, .. } if why.contains("nothing was sent: TLS")), "{outcome:?}");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(authority.as_bytes()).expect("written");
    config.ca_file = Some(file.path().to_owned());
    let outcome = send(&ProviderSink::new(&config).expect("a sink"), to("whatsapp", "1", json!({ "text": "x" }))).await;
    assert_eq!(outcome, Outcome::Accepted);
    assert_eq!(server.take()[0].path, format!("/v25.0/{NUMBER_ID}/messages"));

    config.allow_addresses.clear();
    assert_eq!(ProviderSink::new(&config).expect_err("loopback").field, "slack.endpoint");
    // A name that leads to a private address is found out when it is looked up.
    let mut config = ProviderConfig::default();
    config.slack = api.config().slack;
    config.slack.as_mut().expect("Slack").endpoint = format!("https://localhost:{}", server.address.port());
    let outcome = send(&ProviderSink::new(&config).expect("a sink"), to("slack", "C1", json!({ "text": "x" }))).await;
    assert!(matches!(&outcome, Outcome::Retry { why, .. } if why.contains("allow_addresses")), "{outcome:?}");
    assert_eq!((server.take().len(), api.take().len()), (0, 0));
}
