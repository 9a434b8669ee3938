//! r06: bad input is refused before SQL, and the caller's transaction goes on.

use anyhow::{Result, ensure};
use postrider::{EnqueueError, InvalidMessage, Limits, Message, Outbox, Payload};
use serde_json::value::RawValue;
use testkit::conformance::given::Given;
use testkit::conformance::inputs::refused;

use super::fixture::{Fixture, order};

/// Offers a message to both calls in one transaction, goes on in it, and commits.
async fn offer(fixture: &Fixture, outbox: &Outbox, make: impl Fn() -> Result<Message>) -> Result<InvalidMessage> {
    let mut transaction = fixture.pool.begin().await?;
    let alone = outbox.enqueue(&mut transaction, make()?).await;
    let in_batch = outbox.enqueue_many(&mut transaction, [order(1), make()?]).await;
    sqlx::query("insert into changes (note) values ('go on')").execute(&mut *transaction).await?;
    transaction.commit().await?;
    let (Err(EnqueueError::Invalid { index: 0, source: alone }), Err(error)) = (alone, in_batch) else {
        anyhow::bail!("it was taken");
    };
    ensure!(matches!(&error, EnqueueError::Invalid { index: 1, source } if *source == alone), "{error:?}");
    ensure!(!error.is_retryable() && error.to_string().starts_with("message 1 was refused: "), "{error}");
    Ok(alone)
}

#[tokio::test]
async fn r06_what_is_refused_leaves_the_transaction_usable() -> Result<()> {
    let fixture = Fixture::new().await?;
    let all = refused();
    for (name, _, given) in &all {
        let outcome = offer(&fixture, &fixture.outbox, || given.message()).await;
        outcome.map_err(|error| error.context(name.clone()))?;
    }
    assert_eq!((fixture.ids().await?.len(), fixture.changes().await?), (0, i64::try_from(all.len())?));
    Ok(())
}

fn raw(text: String) -> Result<Message> {
    Ok(Message::json("shop", "order.placed", &RawValue::from_string(text)?))
}

#[tokio::test]
async fn r06_json_that_jsonb_could_choke_on_is_refused_first() -> Result<()> {
    let fixture = Fixture::new().await?;
    for text in [
        format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000)),
        "9".repeat(1_001),
        "1e1001".into(),
        "-1E-1001".into(),
    ] {
        let refused = offer(&fixture, &fixture.outbox, || raw(text.clone())).await?;
        assert!(matches!(refused, InvalidMessage::Json { .. }), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn r06_the_deepest_json_comes_back_readable_from_rust_and_from_sql() -> Result<()> {
    let fixture = Fixture::new().await?;
    let deepest = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let _new = fixture.enqueue(raw(deepest.clone())?).await?;
    let call = "select is_new from postrider_enqueue('shop', 'x', $1::text::jsonb)";
    assert!(sqlx::query_scalar::<_, bool>(call).bind(deepest).fetch_one(&fixture.pool).await?);
    let stored: Vec<String> =
        sqlx::query_scalar("select payload::text from outbox_messages").fetch_all(&fixture.pool).await?;
    assert_eq!(stored.len(), 2);
    for text in stored {
        assert!(Payload::Json(text).to_value().is_ok());
    }
    Ok(())
}

#[tokio::test]
async fn r06_a_payload_is_measured_against_the_outbox_s_limit() -> Result<()> {
    let fixture = Fixture::new().await?;
    let small = fixture.outbox.clone().with_limits(Limits::default().with_max_payload(100));
    for length in [0, 99, 100] {
        let mut transaction = fixture.pool.begin().await?;
        let _new = small.enqueue(&mut transaction, Message::bytes("shop", "blob", "x/y", vec![0; length])).await?;
        transaction.commit().await?;
    }
    for length in [101, 64 * 1024 * 1024] {
        let refused = offer(&fixture, &small, || Ok(Message::bytes("shop", "blob", "x/y", vec![0; length]))).await?;
        assert_eq!(refused, InvalidMessage::PayloadTooLarge { length, limit: 100 });
    }
    let refused = offer(&fixture, &fixture.outbox, || raw(format!("\"{}\"", "x".repeat(64 * 1024 * 1024)))).await?;
    assert!(matches!(refused, InvalidMessage::PayloadTooLarge { .. }));
    assert_eq!(fixture.ids().await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn r06_the_largest_limit_can_be_used_and_not_exceeded() -> Result<()> {
    let fixture = Fixture::new().await?;
    let large = fixture.outbox.clone().with_limits(Limits::default().with_max_payload(usize::MAX));
    let largest = 64 * 1024 * 1024;
    let mut transaction = fixture.pool.begin().await?;
    let _new = large.enqueue(&mut transaction, Message::bytes("shop", "blob", "x/y", vec![7; largest])).await?;
    transaction.commit().await?;
    assert_eq!(fixture.count("select octet_length(payload_bytes)::bigint from outbox_messages").await?, 67_108_864);
    let refused = offer(&fixture, &large, || Ok(Message::bytes("shop", "blob", "x/y", vec![0; largest + 1]))).await?;
    assert!(matches!(refused, InvalidMessage::PayloadTooLarge { .. }));
    Ok(())
}

struct Unserialisable;

impl serde::Serialize for Unserialisable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no"))
    }
}

#[tokio::test]
async fn r06_what_cannot_be_serialised_is_refused() -> Result<()> {
    let fixture = Fixture::new().await?;
    let refused = offer(&fixture, &fixture.outbox, || Ok(Message::json("shop", "x", &Unserialisable))).await?;
    assert_eq!(refused, InvalidMessage::NotSerialisable { why: "no".into() });
    Ok(())
}

#[test]
fn r06_a_message_with_nothing_wrong_is_taken() -> Result<()> {
    assert!(Given::default().message()?.into_row(&Limits::default()).is_ok());
    Ok(())
}
