//! What the service promises, against a real PostgreSQL.

use anyhow::Result;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::chat::{NewTurn, Outcome, Refused, TurnFinished};
use crate::criteria;
use crate::world::{TOKENS, World};

async fn world() -> Result<World> {
    World::open(testkit::Postgres::shared().await?).await
}

/// The only row: its tenant, its key and its payload.
async fn row(world: &World) -> Result<(Option<Uuid>, Option<String>, Value)> {
    let row = "select tenant_id, dedupe_key, payload from modkit_outbox_events";
    let rows: Vec<_> = sqlx::query_as(row).fetch_all(world.store.pool()).await?;
    assert_eq!(rows.len(), 1);
    Ok(rows.into_iter().next().expect("one row"))
}

#[tokio::test]
async fn s0_41_the_dedupe_key_is_tenant_turn_and_request() -> Result<()> {
    let world = world().await?;
    let tenant = world.chat.welcome(100).await?;
    let new = NewTurn { request_id: Uuid::now_v7(), prompt: "Hello".into() };
    let turn = world.chat.begin(tenant, &new).await?.expect("a good prompt");
    assert_eq!(world.chat.begin(tenant, &new).await?, Ok(turn), "the same request is the same turn");
    for outcome in [Outcome::Failed, Outcome::Completed] {
        world.chat.finish(tenant, turn, outcome).await?;
    }
    let (of, key, payload) = row(&world).await?;
    assert_eq!((of, key), (Some(tenant), Some(format!("{tenant}/{turn}/{}", new.request_id))));
    assert_eq!(payload["outcome"], "failed", "the first end counts");
    Ok(())
}

#[tokio::test]
async fn s0_02_a_turn_that_fails_validation_writes_no_row() -> Result<()> {
    let world = world().await?;
    let (tenant, poor) = (world.chat.welcome(100).await?, world.chat.welcome(0).await?);
    let long = "far ".repeat(1_001);
    for (tenant, prompt, why) in [
        (tenant, "", Refused::BadPrompt),
        (tenant, long.as_str(), Refused::BadPrompt),
        (poor, "Hello", Refused::NoQuota),
    ] {
        let new = NewTurn { request_id: Uuid::now_v7(), prompt: prompt.into() };
        assert_eq!(world.chat.begin(tenant, &new).await?, Err(why));
    }
    let turn = world.begun(tenant).await?;
    assert_eq!((world.chat.tokens_left(tenant).await?, &*world.chat.state(turn).await?), (100, "running"));
    assert!(world.chat.finish(poor, turn, Outcome::Completed).await.is_err(), "it is another tenant's");
    assert_eq!(world.rows(None).await?, 0);
    Ok(())
}

#[tokio::test]
async fn s0_88_a_turn_that_ends_has_one_event_committed_with_it() -> Result<()> {
    criteria::one_row_or_none(&world().await?).await.map(drop)
}

#[tokio::test]
async fn s0_89_a_race_has_one_winner_and_one_row() -> Result<()> {
    criteria::losers_are_told(&world().await?).await.map(drop)
}

#[tokio::test]
async fn s0_47_s0_49_the_payload_says_all_that_billing_needs() -> Result<()> {
    let world = world().await?;
    let tenant = world.chat.welcome(100).await?;
    let turn = world.turn(tenant).await?;
    let (_, key, payload) = row(&world).await?;
    // Billing is given nothing but the payload, and has a database of its own.
    let event: TurnFinished = serde_json::from_value(payload)?;
    assert!(world.billing.bill(&event).await?);
    assert_eq!(world.billing.owed(tenant).await?, TOKENS);
    assert_eq!((event.tenant_id, event.turn_id, event.outcome), (tenant, turn, Outcome::Completed));
    assert_eq!(key, Some(event.dedupe_key()), "and it knows the turn by the same three ids");
    Ok(())
}

#[tokio::test]
async fn s0_48_usage_that_a_client_sends_is_not_believed() -> Result<()> {
    let world = world().await?;
    let tenant = world.chat.welcome(100).await?;
    let sent = json!({
        "request_id": Uuid::now_v7(), "prompt": "Two words", "input_tokens": 0, "output_tokens": 0,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    });
    let new: NewTurn = serde_json::from_value(sent)?;
    let turn = world.chat.begin(tenant, &new).await?.expect("a good prompt");
    world.chat.say(turn, "And four in return").await?;
    world.chat.finish(tenant, turn, Outcome::Completed).await?;
    let (_, _, payload) = row(&world).await?;
    assert_eq!((&payload["input_tokens"], &payload["output_tokens"]), (&json!(2), &json!(4)));
    assert_eq!(world.chat.tokens_left(tenant).await?, 94);
    Ok(())
}

#[tokio::test]
async fn s0_74_s0_93_a_turn_that_is_delivered_twice_is_billed_once() -> Result<()> {
    criteria::twice_is_billed_once(&world().await?).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn s0_90_two_dispatchers_never_have_the_same_event() -> Result<()> {
    criteria::dispatchers_share(&world().await?).await.map(drop)
}

#[tokio::test]
async fn s0_92_failures_are_tried_again_later_and_later() -> Result<()> {
    criteria::retries_come_later_and_later(&world().await?).await.map(drop)
}
