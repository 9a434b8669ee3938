//! A relay is killed in the middle of its work again and again, for each way to claim: every message arrives all the same.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider::Message;
use postrider::layout::{Layout, preset};
use sqlx::PgPool;
use testkit::checker::arrivals;
use testkit::{Postgres, Signal, Worker, within};
use uuid::Uuid;

use crate::scene::Scene;

/// So many that none of the kills comes when all is done.
const MESSAGES: usize = 300;
const KILLS: usize = 3;
/// What a relay has in hand at most.
const IN_HAND: usize = 20;
const SOON: Duration = Duration::from_secs(60);

/// A message that fits into a preset's table.
fn message(layout: &str) -> Message {
    let json = |namespace, topic| Message::json(namespace, topic, &serde_json::json!({"number": 1}));
    let (tenant, aggregate) = (Uuid::from_u128(0xA), Uuid::from_u128(9).to_string());
    match layout {
        "modkit" => json("chat", "usage"),
        "talkie" => json("outbox", "chat.message.created"),
        "packfinderz" => json("packfinderz", "order_created").key(aggregate).header("aggregate-type", "vendor_order"),
        "valinor" => {
            json("channels", "slack").key("U1").tenant(tenant).header("channel-message-id", tenant.to_string())
        }
        _ => json("outboxevent", "order").key("7").header("event-type", "placed"),
    }
}

async fn relay(outbox: &str, record: &str, layout: &str) -> Result<Worker> {
    let environment = [
        ("DATABASE_URL", outbox),
        ("ARRIVALS_URL", record),
        ("LAYOUT", layout),
        ("LEASE_MS", "2000"),
        ("POLL_MS", "50"),
        ("CONCURRENCY", "2"),
        ("BATCH", "10"),
        ("MAX_ROWS", "20"),
        ("DELAY_MS", "15"),
        ("CONNECTIONS", "6"),
    ];
    let relay = Worker::spawn(env!("CARGO_BIN_EXE_relay"), &[], &environment)?;
    relay.wait_for_line(|line| line == "ready", SOON).await?;
    Ok(relay)
}

/// A role for the relay that is no superuser and owns nothing: row-level security is forced, and it has a policy of its own.
async fn confined(pool: &PgPool, database: &str) -> Result<String> {
    let role = format!("{database}_relay");
    let sql = format!(
        "create role {role} login; grant select, update on channel_outbox to {role};
         alter table channel_outbox force row level security;
         create policy relay on channel_outbox to {role} using (true) with check (true)"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(pool).await?;
    let free = "select rolsuper or rolbypassrls from pg_roles where rolname = $1";
    let free: bool = sqlx::query_scalar(free).bind(&role).fetch_one(pool).await?;
    let forced = "select relrowsecurity and relforcerowsecurity from pg_class where relname = 'channel_outbox'";
    let forced: bool = sqlx::query_scalar(forced).fetch_one(pool).await?;
    ensure!(!free && forced, "the relay is not confined");
    Ok(role)
}

/// How many rows a relay has in its hands: claimed by their word, or locked where there is none.
async fn in_hand(scene: &Scene) -> Result<i64> {
    let layout = scene.store.layout();
    let table = layout.names.table();
    let sql = match (&layout.status, &layout.words) {
        (Some(status), Some(words)) => {
            format!("select count(*) from {table} where {} = '{}'", status.name, words.processing)
        }
        _ => format!(
            "select (select count(*) from {table}) - (select count(*) from (select id from {table} for update skip locked) as free)"
        ),
    };
    Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&scene.pool).await?)
}

async fn survives(layout: &'static str) -> Result<()> {
    let server = Postgres::shared().await?;
    let record = server.create_database().await?;
    let arrived = record.pool().await?;
    arrivals::create(&mut *arrived.acquire().await?).await?;
    let scene = Scene::of(Layout { lock_timeout: Duration::from_secs(2), ..preset(layout)? }).await;
    let parents = "insert into tenants values ('00000000-0000-0000-0000-00000000000a');
                   insert into channel_messages values ('00000000-0000-0000-0000-00000000000a', null)";
    scene.run(parents).await;
    let mut written = HashSet::new();
    for _ in 0..MESSAGES {
        written.insert(scene.put(message(layout)).await);
    }
    let name: String = sqlx::query_scalar("select current_database()").fetch_one(&scene.pool).await?;
    let mut url = server.url(&name);
    if layout == "valinor" {
        let role = confined(&scene.pool, &name).await?;
        url = url.replacen("://postgres", &format!("://{role}"), 1);
    }
    // Locks go with their process, so they are counted before it dies; claimed rows stay, and are counted afterwards.
    let locks = scene.store.layout().status.is_none();
    let mut left = Vec::new();
    let count =
        async || -> Result<i64> { Ok(sqlx::query_scalar("select count(*) from arrivals").fetch_one(&arrived).await?) };
    for _ in 0..KILLS {
        let before = count().await?;
        let mut relay = relay(&url, &record.url(), layout).await?;
        within(SOON, "some arrivals", || async { count().await.is_ok_and(|now| now >= before + 8) }).await?;
        if locks {
            left.push(in_hand(&scene).await?);
        }
        relay.signal(Signal::SIGKILL)?;
        relay.wait(SOON).await?;
        if !locks {
            left.push(in_hand(&scene).await?);
        }
    }
    ensure!(left.iter().any(|rows| *rows > 0), "no kill hit a relay that had rows in its hands: {left:?}");
    let mut relay = relay(&url, &record.url(), layout).await?;
    let finished = || async {
        let stats = postrider::Store::stats(&scene.store, &postrider::store::Scope::all()).await;
        stats.is_ok_and(|stats| stats.pending + stats.processing == 0)
    };
    within(SOON, "an end of all messages", finished).await?;
    relay.signal(Signal::SIGTERM)?;
    ensure!(relay.wait(SOON).await?.code() == Some(0), "it did not stop in good order");
    let arrived: Vec<Uuid> =
        sqlx::query_scalar("select id from arrivals").fetch_all(&arrived).await.context("arrivals")?;
    ensure!(arrived.iter().copied().collect::<HashSet<_>>() == written, "{} of {MESSAGES} arrived", arrived.len());
    ensure!(arrived.len() <= MESSAGES + KILLS * IN_HAND, "{} arrivals of {MESSAGES} messages", arrived.len());
    Ok(())
}

#[tokio::test]
async fn c6_a_relay_that_is_killed_loses_nothing_with_leases() -> Result<()> {
    survives("modkit").await
}

#[tokio::test]
async fn c6_s2_27_a_relay_that_is_killed_loses_nothing_with_lock_time_outs() -> Result<()> {
    survives("talkie").await
}

#[tokio::test]
async fn c6_s4_27_a_relay_that_is_killed_loses_nothing_with_lock_time_outs_and_tenants() -> Result<()> {
    survives("valinor").await
}

#[tokio::test]
async fn c6_s3_41_a_relay_that_is_killed_loses_nothing_with_row_locks() -> Result<()> {
    survives("packfinderz").await
}

#[tokio::test]
async fn c6_a_relay_that_is_killed_loses_nothing_with_row_locks_and_deletes() -> Result<()> {
    survives("debezium").await
}
