//! r07: a payload arrives as it was given, and as the same bytes on every attempt.

use std::time::Duration;

use anyhow::{Context, Result};
use postrider::store::{ClaimOrder, ClaimRequest, Delivered, Nack};
use postrider::{ClaimedMessage, Message, Payload, Scope, Store};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::value::RawValue;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::exact_json::Exact;
use super::fixture::Fixture;

/// Enqueues a message, claims it twice and settles it; answers its two attempts.
async fn carry(fixture: &Fixture, message: Message) -> Result<(ClaimedMessage, ClaimedMessage)> {
    let id = message.id();
    assert!(fixture.enqueue(message).await?.is_new());
    let first = claim(fixture).await?;
    let nack = Nack { lease: first.lease, delay: Duration::ZERO, error: "again".into() };
    fixture.store.nack(&[nack]).await?;
    let second = claim(fixture).await?;
    fixture.store.ack(&[second.lease], Delivered::Delete).await?;
    assert_eq!((first.id, second.id, first.attempts, second.attempts), (id, id, 1, 2));
    Ok((first, second))
}

async fn claim(fixture: &Fixture) -> Result<ClaimedMessage> {
    let request = ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::new_v4(),
        limit: 10,
        max_bytes: u64::MAX,
        lease: Duration::from_secs(60),
        max_attempts: 10,
        order: ClaimOrder::Due,
    };
    let mut messages = fixture.store.claim(&request).await?.messages;
    anyhow::ensure!(messages.len() == 1, "{} messages", messages.len());
    messages.pop().context("one message")
}

async fn carry_json(fixture: &Fixture, text: &str) -> Result<()> {
    let message = Message::json("shop", "value", &RawValue::from_string(text.to_owned())?);
    let (first, second) = carry(fixture, message).await?;
    let Payload::Json(arrived) = &first.payload else { anyhow::bail!("not JSON") };
    assert_eq!(Exact::parse(arrived)?, Exact::parse(text)?, "{text}");
    assert_eq!(first.payload.as_bytes(), second.payload.as_bytes());
    assert_eq!(first.content_type(), "application/json");
    Ok(())
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

/// Runs a property against a fixture that all of its cases share.
fn check<S: Strategy>(strategy: S, test: impl AsyncFn(&Fixture, S::Value) -> Result<()>) -> Result<()> {
    let runtime = Runtime::new()?;
    let fixture = runtime.block_on(Fixture::new())?;
    let mut runner =
        TestRunner::new(Config { cases: 256, failure_persistence: None, max_shrink_iters: 200, ..Config::default() });
    let outcome = runner.run(&strategy, |value| {
        runtime.block_on(test(&fixture, value)).map_err(|error| TestCaseError::fail(format!("{error:?}")))
    });
    outcome.map_err(|error| anyhow::anyhow!("{error}"))
}

#[test]
fn r07_bytes_arrive_byte_for_byte_on_every_attempt() -> Result<()> {
    check(any::<Vec<u8>>(), async |fixture, bytes| {
        let message = Message::bytes("shop", "blob", "application/x-blob", bytes.clone());
        let (first, second) = carry(fixture, message).await?;
        assert_eq!(first.payload, Payload::Bytes(bytes));
        assert_eq!((&first.payload, first.content_type()), (&second.payload, "application/x-blob"));
        Ok(())
    })
}

#[test]
fn r07_json_arrives_as_the_same_value_with_exact_numbers() -> Result<()> {
    check(json(), async |fixture, text| carry_json(fixture, &text).await)
}

#[tokio::test]
async fn r07_the_values_that_bit_others_arrive_unchanged() -> Result<()> {
    let fixture = Fixture::new().await?;
    for text in [
        r#"{"b":1,"a":1,"n":1.0e2,"big":123456789012345678901234567890}"#,
        r#"{"price": 0.10, "tiny": 1e-400, "huge": 1E+400, "zero": -0.0}"#,
        r#"{"": {"": [[], {}, ""]}, " ": " ", "emoji": "\ud83d\ude00", "line": "\u2028"}"#,
        r#"{"twice": 1, "twice": 2}"#,
        "9007199254740993",
        "\"\\\\u0000\"",
    ] {
        carry_json(&fixture, text).await?;
    }
    Ok(())
}
