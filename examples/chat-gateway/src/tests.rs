//! What the gateway promises, against a real PostgreSQL and over Kafka's protocol.

use std::time::Duration;

use anyhow::Result;

use crate::criteria;
use crate::publisher::Settings;
use crate::world::World;

async fn world() -> Result<World> {
    World::open(testkit::Postgres::shared().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_03_a_chat_message_and_its_event_are_committed_together() -> Result<()> {
    criteria::together(&world().await?).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_01_s2_06_an_event_reaches_kafka_with_its_topic_and_key() -> Result<()> {
    criteria::reaches_kafka(&world().await?, Settings::default()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_12_two_workers_never_publish_the_same_record() -> Result<()> {
    criteria::workers_share(&world().await?).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_16_a_consumer_sees_one_event_although_it_is_published_twice() -> Result<()> {
    criteria::handled_once(&world().await?).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_09_s2_18_s2_19_s2_20_s2_21_s2_26_dead_letters_are_seen_resent_and_purged_and_records_move_as_the_picture_says()
-> Result<()> {
    let world = world().await?;
    if world.kafka.is_real() {
        println!("not shown on a real broker: it refuses nothing on command");
        return Ok(());
    }
    criteria::failures(&world).await?;
    criteria::questions(&world).await?;
    criteria::dead_letters(&world).await?;
    criteria::picture(&world).await.map(drop)
}

#[test]
fn s2_11_the_interval_is_a_second_unless_the_environment_says_otherwise() -> Result<()> {
    let usual = Settings::read(|_| None)?;
    assert_eq!((usual, usual.interval), (Settings::default(), Duration::from_secs(1)));
    let set = Settings::read(|name| (name == "OUTBOX_INTERVAL_MS").then(|| "250".into()))?;
    assert_eq!(set, Settings { interval: Duration::from_millis(250), ..usual });
    let error = Settings::read(|name| (name == "OUTBOX_BATCH_SIZE").then(|| "many".into())).expect_err("no number");
    assert!(error.to_string().contains("OUTBOX_BATCH_SIZE is \"many\""), "{error}");
    Ok(())
}
