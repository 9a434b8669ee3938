//! The checkers can fail: each finds the breach that is planted for it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::checker::Bounds;
use uuid::Uuid;

use super::inside::{Inside, bounds};
use super::scene::Scene;

/// A database at rest with three delivered messages.
async fn at_rest() -> Result<Scene> {
    let scene = Scene::new().await?;
    scene.enqueue("sound", 3).await?;
    let relay =
        Inside::start(&scene, &scene.database.url(), Duration::ZERO, |builder| builder.lease(Duration::from_secs(60)))
            .await?;
    scene.finished(Duration::from_secs(120)).await?;
    let _ = relay.stop().await?;
    scene.check(bounds(0)).await?;
    Ok(scene)
}

async fn complaint(scene: &Scene, bounds: Bounds) -> Result<String> {
    Ok(scene.check(bounds).await.err().context("the checkers noticed nothing")?.to_string())
}

async fn finds(expected: &str, in_outbox: &str, in_record: &str) -> Result<()> {
    let scene = at_rest().await?;
    sqlx::raw_sql(AssertSqlSafe(in_outbox.to_owned())).execute(&scene.pool).await?;
    let mut record = PgConnection::connect(&scene.record.url()).await?;
    sqlx::raw_sql(AssertSqlSafe(in_record.to_owned())).execute(&mut record).await?;
    let found = complaint(&scene, bounds(0)).await?;
    ensure!(found.contains(expected), "expected `{expected}`, found {found}");
    Ok(())
}

#[tokio::test]
async fn i1_finds_a_message_without_its_change_and_a_commit_that_is_not_there() -> Result<()> {
    finds("I1: 3 in the ledger and not", "delete from ledger", "").await?;
    let told = Bounds { told: vec![Uuid::nil()], ..bounds(0) };
    ensure!(complaint(&at_rest().await?, told).await?.contains("I1: 1 told"));
    Ok(())
}

#[tokio::test]
async fn i2_i3_i4_find_lost_changed_and_repeated_messages() -> Result<()> {
    finds("I2: 3 ", "", "delete from arrivals").await?;
    finds("I3: 3 ", "", "update arrivals set digest = md5('other')").await?;
    finds("I3: 3 ", "", "update arrivals set key = 'other'").await?;
    finds("I4: 3 duplicates", "", "insert into arrivals select * from arrivals").await
}

#[tokio::test]
async fn i6_finds_changes_that_the_state_machine_does_not_have() -> Result<()> {
    finds("I6: delivered became pending", "update outbox_messages set status = 'pending'", "").await?;
    finds("I6: delivered became deleted", "delete from outbox_messages", "").await?;
    finds("I6: 3 delivered by an attempt that had not arrived", "", "update arrivals set attempt = 2").await?;
    let stolen = "update changes set made_by = 'thief' where became = 'delivered'";
    finds("I6: 3 settled by a worker that did not hold", stolen, "").await?;
    let jumped = "insert into changes (id, was, became, attempts_were, attempts, locked_until_was) \
                  select id, 'processing', 'processing', 1, 2, now() + interval '1 s' from outbox_messages limit 1";
    finds("I6: 1 claimed while another lease", jumped, "").await
}

#[tokio::test]
async fn i7_i8_find_forgotten_leases_and_wrong_attempts() -> Result<()> {
    let forgotten = "update outbox_messages set status = 'processing', locked_until = now() - interval '1 h'";
    finds("I7: 3 under a lease that ended", forgotten, "").await?;
    finds("I8: 3 more attempts than allowed", "update outbox_messages set attempts = 11", "").await?;
    finds("I8: 3 more attempts than allowed, or dead", "update outbox_messages set status = 'dead'", "").await
}
