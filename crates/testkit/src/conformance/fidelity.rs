//! r07: a payload arrives as it was given, and as the same bytes on every attempt.

use postrider::{ClaimedMessage, Message, Payload};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::exact_json::Exact;
use super::harness::Harness;
use super::scene::{ack, fail};

/// How many payloads of each kind.
const CASES: usize = 150;

/// Enqueues a message, claims it twice and settles it; answers its two attempts.
async fn carry(h: &impl Harness, message: Message) -> (ClaimedMessage, ClaimedMessage) {
    let (id, worker) = (h.put(message).await, Uuid::new_v4());
    let first = h.claim_one(worker).await;
    fail(&*h.store(), first.lease).await;
    let second = h.claim_one(worker).await;
    ack(&*h.store(), second.lease).await;
    assert_eq!((first.id, second.id, first.attempts, second.attempts), (id, id, 1, 2));
    (first, second)
}

async fn carry_json(h: &impl Harness, text: &str) {
    let payload = RawValue::from_string(text.to_owned()).expect("it is JSON");
    let (first, second) = carry(h, Message::json("shop", "value", &payload)).await;
    let Payload::Json(arrived) = &first.payload else { panic!("not JSON: {:?}", first.payload) };
    let exact = |text: &str| Exact::parse(text).expect("it is JSON");
    assert_eq!(exact(arrived), exact(text), "{text}");
    assert_eq!(first.payload.as_bytes(), second.payload.as_bytes());
    assert_eq!(first.content_type(), "application/json");
}

/// Values of a strategy, the same in every run.
fn values<S: Strategy>(strategy: S) -> impl Iterator<Item = S::Value> {
    let mut runner = TestRunner::deterministic();
    (0..CASES).map(move |_| strategy.new_tree(&mut runner).expect("the strategy makes values").current())
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,40})",
        "-?(0|[1-9][0-9]{0,20})\\.[0-9]{1,40}",
        "-?[1-9](\\.[0-9]{1,5})?[eE][+-]?[0-9]{1,2}",
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
    ]
}

/// Any text but NUL, which JSON in a database cannot hold; written with and without escapes.
fn string() -> impl Strategy<Value = String> {
    let text = any::<Vec<char>>().prop_map(|chars| chars.into_iter().filter(|c| *c != '\0').collect::<String>());
    let plain = text.prop_map(|text| serde_json::Value::from(text).to_string());
    let escaped = "([a-z ]|\\\\u00[1-9a-f][0-9A-F]|\\\\ud83d\\\\ude0[0-9]|\\\\[nrtbf/\"\\\\]){0,12}";
    prop_oneof![plain, escaped.prop_map(|text| format!("\"{text}\""))]
}

fn json() -> impl Strategy<Value = String> {
    let leaf =
        prop_oneof![Just("null".to_owned()), Just("true".to_owned()), Just("false".to_owned()), number(), string()];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec((string(), inner), 0..8).prop_map(|pairs| {
                let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}:{value}")).collect();
                format!("{{{}}}", pairs.join(","))
            }),
        ]
    })
}

pub async fn r07_any_bytes_arrive_byte_for_byte_on_every_attempt(h: impl Harness) {
    for bytes in values(any::<Vec<u8>>()) {
        let (first, second) = carry(&h, Message::bytes("shop", "blob", "application/x-blob", bytes.clone())).await;
        assert_eq!(first.payload, Payload::Bytes(bytes));
        assert_eq!((&first.payload, first.content_type()), (&second.payload, "application/x-blob"));
    }
}

pub async fn r07_any_json_arrives_as_the_same_value_with_exact_numbers(h: impl Harness) {
    for text in values(json()) {
        carry_json(&h, &text).await;
    }
}

pub async fn r07_the_values_that_bit_others_arrive_unchanged(h: impl Harness) {
    for text in [
        r#"{"b":1,"a":1,"n":1.0e2,"big":123456789012345678901234567890}"#,
        r#"{"price": 0.10, "tiny": 1e-400, "huge": 1E+400, "zero": -0.0}"#,
        r#"{"": {"": [[], {}, ""]}, " ": " ", "emoji": "\ud83d\ude00", "line": "\u2028"}"#,
        r#"{"twice": 1, "twice": 2}"#,
        "9007199254740993",
        "\"\\\\u0000\"",
    ] {
        carry_json(&h, text).await;
    }
}
