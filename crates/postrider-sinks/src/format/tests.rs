//! What each format makes of a message, also of one that was written by hand to deceive.

use std::collections::HashSet;

use postrider_core::{Actor, Lease, RowAddress};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::*;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PREFIX: &str = "ce_";

fn message(payload: Payload, headers: &[(&str, &str)]) -> ClaimedMessage {
    let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
    let mut message = ClaimedMessage::new(lease, "shop".into(), "order.placed".into(), payload);
    message.created_at_micros = 1_700_000_000_123_456;
    message.headers.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    message
}

/// A message with one number, and with everything that a message can have.
fn full() -> ClaimedMessage {
    let mut message = message(
        Payload::Json(r#"{"number": 7.10}"#.into()),
        &[
            ("event-type", "order_placed"),
            ("event-version", "3"),
            ("aggregate-type", "order"),
            ("occurred-at", "2026-11-16T08:00:00.25+01:00"),
            ("actor", r#"{"type":"user","id":"42","role":"clerk"}"#),
            ("postrider-replayed", "2"),
            ("traceparent", TRACE),
            ("tracestate", "a=1"),
            ("colour", "rosé"),
        ],
    );
    (message.key, message.dedupe_key, message.tenant_id) = (Some("7".into()), Some("d".into()), Some(Uuid::nil()));
    message
}

fn form(format: Format) -> Form {
    Form::new(format, Source::DEFAULT, PREFIX).expect("a form")
}

fn content(format: Format, message: &ClaimedMessage) -> Content<'_> {
    form(format).content(message).expect("it can be written")
}

fn header<'a>(content: &'a Content<'_>, name: &str) -> Option<&'a str> {
    content.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
}

fn body(content: &Content<'_>) -> Value {
    serde_json::from_slice(&content.body).expect("JSON")
}

#[test]
fn every_format_has_our_headers_first_and_in_the_same_order() {
    let message = full();
    let ours = [
        ("event_id", message.id.to_string()),
        ("event_type", "order_placed".into()),
        ("event_version", "3".into()),
        ("aggregate_type", "order".into()),
        ("aggregate_id", "7".into()),
        ("namespace", "shop".into()),
        ("topic", "order.placed".into()),
        ("key", "7".into()),
        ("tenant_id", Uuid::nil().to_string()),
        ("dedupe_key", "d".into()),
        ("attempt", "1".into()),
        ("created_at", "2023-11-14T22:13:20.123456Z".into()),
        ("replayed", "2".into()),
        ("content-type", String::new()),
        ("traceparent", TRACE.into()),
        ("tracestate", "a=1".into()),
    ];
    for (format, content_type) in [
        (Format::Plain, "application/json"),
        (Format::Envelope, "application/json"),
        (Format::CloudeventsBinary, "application/json"),
        (Format::CloudeventsStructured, "application/cloudevents+json"),
    ] {
        let content = content(format, &message);
        assert_eq!(content.content_type, content_type, "{format:?}");
        let names: Vec<_> = content.headers.iter().map(|(name, _)| &**name).collect();
        let names: Vec<_> = names.into_iter().filter(|name| !name.starts_with(PREFIX)).collect();
        let expected: Vec<_> = ours.iter().map(|(name, _)| *name).chain(["actor", "colour", "occurred-at"]).collect();
        assert_eq!(names, expected, "{format:?}");
        for (name, value) in &ours {
            let value = if *name == "content-type" { content_type } else { value };
            assert_eq!(header(&content, name), Some(value), "{format:?} {name}");
        }
    }
}

#[test]
fn what_a_message_lacks_is_left_out() {
    let message = message(Payload::Bytes(vec![0xff]), &[]);
    let content = content(Format::Plain, &message);
    let names: Vec<_> = content.headers.iter().map(|(name, _)| &**name).collect();
    let always =
        ["event_id", "event_type", "event_version", "namespace", "topic", "attempt", "created_at", "content-type"];
    assert_eq!(names, always);
    assert_eq!((header(&content, "event_type"), header(&content, "event_version")), (Some("order.placed"), Some("1")));
    assert_eq!((&*content.body, &*content.content_type), (&[0xff][..], "application/octet-stream"));
}

#[test]
fn bodies_are_the_payload_an_envelope_or_an_event() {
    let message = full();
    assert_eq!(&*content(Format::Plain, &message).body, br#"{"number": 7.10}"#, "byte for byte");
    assert_eq!(&*content(Format::CloudeventsBinary, &message).body, br#"{"number": 7.10}"#);
    let enveloped = content(Format::Envelope, &message);
    let expected = json!({
        "version": 3, "eventId": message.id, "occurredAt": "2026-11-16T08:00:00.25+01:00",
        "actor": {"type": "user", "id": "42", "role": "clerk"}, "data": {"number": 7.1}
    });
    assert_eq!(body(&enveloped), expected);
    assert!(String::from_utf8_lossy(&enveloped.body).contains(r#""data":{"number": 7.10}"#), "its JSON is untouched");
    let structured = content(Format::CloudeventsStructured, &message);
    let expected = json!({
        "specversion": "1.0", "id": message.id, "source": "/postrider/shop", "type": "order_placed",
        "time": "2026-11-16T08:00:00.25+01:00", "datacontenttype": "application/json", "subject": "7",
        "partitionkey": "7", "namespace": "shop", "aggregatetype": "order", "tenantid": Uuid::nil(), "dedupekey": "d",
        "attempt": 1, "replayed": 2, "traceparent": TRACE, "tracestate": "a=1", "data": {"number": 7.1}
    });
    assert_eq!(body(&structured), expected);
    let binary = content(Format::CloudeventsBinary, &message);
    for (name, value) in expected.as_object().expect("an object") {
        let found = header(&binary, &format!("{PREFIX}{name}"));
        match name.as_str() {
            "data" | "datacontenttype" => assert_eq!(found, None, "{name}"),
            _ => assert_eq!(found, Some(value.as_str().map_or(value.to_string(), str::to_owned).as_str()), "{name}"),
        }
    }
}

#[test]
fn bytes_go_as_they_are_or_in_base64_and_never_into_an_envelope() {
    let bytes = message(Payload::Bytes(vec![0, 0xff]), &[("content-type", "application/x")]);
    for format in [Format::Plain, Format::CloudeventsBinary] {
        let content = content(format, &bytes);
        assert_eq!((&*content.body, &*content.content_type), (&[0, 0xff][..], "application/x"), "{format:?}");
    }
    let structured = body(&content(Format::CloudeventsStructured, &bytes));
    assert_eq!((&structured["data_base64"], &structured["datacontenttype"]), (&json!("AP8="), &json!("application/x")));
    let why = form(Format::Envelope).content(&bytes).map(drop).expect_err("no JSON");
    assert!(why.contains("bytes"), "{why}");
    // JSON under another name is not what a reader of `data` expects.
    let named = message(Payload::Json("{}".into()), &[("content-type", "text/x")]);
    assert_eq!(body(&content(Format::CloudeventsStructured, &named))["data_base64"], "e30=");
    let broken = message(Payload::Json("{broken".into()), &[]);
    for format in [Format::Envelope, Format::CloudeventsStructured] {
        assert_eq!(form(format).content(&broken).map(drop), Err("its payload is not JSON".into()), "{format:?}");
    }
}

/// Names are compared without case, because consumers do so: the CloudEvents library for Python for one.
#[test]
fn s05_no_header_of_a_producer_is_taken_for_one_of_ours() {
    let imitated = [
        "event_id",
        "EVENT_ID",
        "Event_Type",
        "event_version",
        "aggregate_type",
        "aggregate_id",
        "namespace",
        "topic",
        "key",
        "Key",
        "tenant_id",
        "dedupe_key",
        "attempt",
        "created_at",
        "replayed",
        "Content-Type",
        "Traceparent",
        "TRACESTATE",
        "ce_id",
        "CE_ID",
        "Ce_Source",
        "ce_",
        "postrider-header-event_id",
        "Postrider-Header-x",
        "postrider-header-",
    ];
    // Also where the message has no such thing of its own, as a tenant: what is not there cannot be made up.
    for mut message in [message(Payload::Json("{}".into()), &[]), full()] {
        message.headers.retain(|name, _| name == "traceparent");
        message.headers.extend(imitated.iter().map(|name| ((*name).to_owned(), "forged".to_owned())));
        for format in Format::ALL {
            let content = content(format, &message);
            let forged: HashSet<_> =
                content.headers.iter().filter(|(_, value)| value == "forged").map(|(name, _)| &**name).collect();
            let expected: Vec<_> = imitated.iter().map(|name| format!("{CARRIED}{name}")).collect();
            assert_eq!(forged, expected.iter().map(String::as_str).collect(), "{format:?}");
            let names: HashSet<_> = content.headers.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), content.headers.len(), "{format:?}: no name comes twice");
        }
    }
}

#[test]
fn s05_a_payload_that_calls_itself_a_cloudevent_is_not_taken_for_one() {
    for given in ["application/cloudevents+json", " Application/CloudEvents-Batch+json; charset=utf-8"] {
        let mut forged = message(Payload::Json(r#"{"id":"forged"}"#.into()), &[("content-type", given)]);
        forged.headers.insert("Content-Type".into(), "mine".into());
        let content = content(Format::CloudeventsBinary, &forged);
        assert_eq!(content.content_type, "application/octet-stream");
        assert_eq!(header(&content, "content-type"), Some("application/octet-stream"));
        assert_eq!(header(&content, "postrider-header-content-type"), Some(given));
        assert_eq!(header(&content, "postrider-header-Content-Type"), Some("mine"));
        let structured = body(&super::tests::content(Format::CloudeventsStructured, &forged));
        assert_eq!((&structured["datacontenttype"], &structured["id"]), (&json!(given), &json!(forged.id)));
    }
}

/// What cannot be read is neither believed nor lost.
#[test]
fn what_is_no_time_and_no_version_stays_a_header_of_the_producer() {
    for (name, bad) in [
        ("occurred-at", "yesterday"),
        ("occurred-at", "2026-11-16 08:00"),
        ("occurred-at", "2026-13-01T00:00:00Z"),
        ("event-version", "0"),
        ("event-version", "-1"),
        ("event-version", "two"),
        ("event-version", "4294967296"),
        ("postrider-replayed", "often"),
    ] {
        let message = message(Payload::Json("{}".into()), &[(name, bad)]);
        let plain = content(Format::Plain, &message);
        assert_eq!((header(&plain, name), header(&plain, "event_version")), (Some(bad), Some("1")), "{name} {bad}");
        let enveloped = body(&content(Format::Envelope, &message));
        assert_eq!(enveloped["occurredAt"], "2023-11-14T22:13:20.123456Z", "{name} {bad}");
        assert_eq!(enveloped["version"], 1, "{name} {bad}");
    }
}

#[test]
fn times_of_producers_keep_their_offset_and_fractions() {
    for given in [
        "2026-11-16T08:00:00Z",
        "2026-11-16T08:00:00.123456789-05:30",
        "1969-12-31T23:59:59.5+14:00",
        "9999-12-31T23:59:59.999999999-23:59",
        "0001-01-01T00:00:00+23:59",
    ] {
        let message = message(Payload::Json("{}".into()), &[("occurred-at", given)]);
        let envelope: EventEnvelope<Value> =
            serde_json::from_slice(&content(Format::Envelope, &message).body).expect("an envelope");
        let expected = OffsetDateTime::parse(given, &Rfc3339).expect("a time");
        assert_eq!((envelope.occurred_at, envelope.occurred_at.offset()), (expected, expected.offset()), "{given}");
        assert_eq!(body(&content(Format::CloudeventsStructured, &message))["time"], given);
        assert_eq!(header(&content(Format::CloudeventsBinary, &message), "ce_time"), Some(given));
        assert_eq!(header(&content(Format::Plain, &message), "occurred-at"), Some(given));
    }
}

#[test]
fn a_time_is_written_as_every_reader_takes_it() {
    for (given, written) in [
        ("2026-11-16 08:00:00.5+01:00", "2026-11-16T08:00:00.5+01:00"),
        ("2026-11-16t08:00:00z", "2026-11-16T08:00:00Z"),
    ] {
        let message = message(Payload::Json("{}".into()), &[("occurred-at", given)]);
        assert_eq!(header(&content(Format::CloudeventsBinary, &message), "ce_time"), Some(written));
        assert_eq!(body(&content(Format::Envelope, &message))["occurredAt"], written);
        assert_eq!(
            header(&content(Format::Plain, &message), "occurred-at"),
            Some(given),
            "the header is the producer's"
        );
    }
}

#[test]
fn an_actor_is_told_of_as_it_was_given_or_the_message_is_not_sent() {
    let enveloped = |actor: &str| {
        let message = message(Payload::Json("{}".into()), &[("actor", actor)]);
        let content = form(Format::Envelope).content(&message).map(|content| content.body.into_owned());
        content.map(|body| serde_json::from_slice::<EventEnvelope<Value>>(&body).expect("an envelope").actor)
    };
    assert_eq!(enveloped(r#"{"type":"user","id":"42"}"#), Ok(Some(Actor::new("user", "42"))));
    assert_eq!(enveloped(""), Ok(None), "empty is as good as none");
    for bad in ["42", "null", "{}", r#"{"type":"user"}"#, r#"{"type":"user","id":42}"#, "canary"] {
        let why = enveloped(bad).expect_err(bad);
        assert!(why.contains("actor") && !why.contains("canary"), "{why}");
    }
    // Other formats have no place for it and pass it on.
    let strange = message(Payload::Json("{}".into()), &[("actor", "canary")]);
    for format in [Format::Plain, Format::CloudeventsBinary, Format::CloudeventsStructured] {
        assert_eq!(header(&content(format, &strange), "actor"), Some("canary"), "{format:?}");
    }
}

#[test]
fn every_attempt_says_the_same_but_for_its_number() {
    for format in Format::ALL {
        let first = full();
        let mut second = first.clone();
        second.attempts = 2;
        let (one, two) = (content(format, &first), content(format, &second));
        for ((name, before), (again, after)) in one.headers.iter().zip(&two.headers) {
            assert_eq!(name, again, "{format:?}");
            match name.ends_with("attempt") {
                true => assert_eq!((&**before, &**after), ("1", "2"), "{format:?}"),
                false => assert_eq!(before, after, "{format:?} {name}"),
            }
        }
        assert_eq!(one.headers.len(), two.headers.len(), "{format:?}");
        let number = |body: &[u8]| String::from_utf8_lossy(body).replace(r#""attempt":2"#, r#""attempt":1"#);
        assert_eq!(number(&one.body), number(&two.body), "{format:?}");
        assert_eq!(one.body == two.body, format != Format::CloudeventsStructured, "{format:?}");
    }
}

#[test]
fn an_event_without_a_type_or_source_is_not_sent() {
    let mut nameless = message(Payload::Json("{}".into()), &[]);
    nameless.topic = String::new();
    let keyless = message(Payload::Json("{}".into()), &[]);
    for format in [Format::CloudeventsBinary, Format::CloudeventsStructured] {
        let why = form(format).content(&nameless).map(drop).expect_err("no type");
        assert!(why.contains("topic is empty"), "{why}");
        let source = Form::new(format, "/{key}", PREFIX).expect("a form");
        assert!(source.content(&keyless).map(drop).expect_err("no key").contains("key"));
    }
    assert_eq!(Form::new(Format::Plain, "not a uri", PREFIX).map(drop).expect_err("a problem").field, "source");
}
