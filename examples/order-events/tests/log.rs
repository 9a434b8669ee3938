//! The publisher's log; a process of its own, because a process has one log.

use anyhow::Result;
use order_events::scene::{PATIENCE, Scene, impatient};
use testkit::log::Log;
use testkit::within;

#[tokio::test]
async fn s3_17_the_publisher_logs_event_id_type_and_aggregate() -> Result<()> {
    let log = Log::listen();
    let scene = Scene::start().await?;
    let (order, event) = scene.shop.place("canary-buyer", 700).await?;
    let publisher = scene.publish(impatient()?).await?;
    let says = |outcome: &'static str| {
        let parts = [
            format!("event_id={event}"),
            "event_type=\"order_created\"".into(),
            "aggregate_type=\"vendor_order\"".into(),
            format!("aggregate_id=\"{order}\""),
            format!("outcome=\"{outcome}\""),
        ];
        let log = log.clone();
        move || {
            let found = log.text().lines().any(|line| parts.iter().all(|part| line.contains(part)));
            async move { found }
        }
    };
    within(PATIENCE, "a line about a failure", says("retry")).await?;
    scene.create_topic().await?;
    within(PATIENCE, "a line about the success", says("accepted")).await?;
    scene.published(1).await?;
    publisher.stop().await?;
    let ours = log.text();
    let lines = |words: &str| ours.lines().filter(|line| line.contains(words)).count();
    let attempts = format!("event_id={event}");
    let retries = ours.lines().filter(|line| line.contains(&attempts) && line.contains("outcome=\"retry\"")).count();
    assert_eq!(retries, lines("message will be tried again"), "one line for each retry");
    assert!(
        !ours.lines().any(|line| line.contains("order_events") && line.contains("canary")),
        "no payload in the log"
    );
    Ok(())
}
