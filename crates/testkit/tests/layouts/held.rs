//! Marks that the database refuses, claims that nobody ends, and what a claim by row lock takes at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use postrider::layout::Layout;
use postrider::store::{Bury, Delivered, Finished, Purge, Scope};
use postrider::{AnyStore, Connect, Dispatcher, Message, Operator, PostgresStore, Settled, Store, callback};
use sqlx::postgres::PgPoolOptions;
use testkit::checker::arrivals;
use testkit::{Postgres, Signal, Worker, within};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::scene::Scene;

const SOON: Duration = Duration::from_secs(60);

fn placed() -> Message {
    Message::json("outboxevent", "order", &7).key("7").header("event-type", "placed")
}

fn created() -> Message {
    Message::json("packfinderz", "order_created", &7)
        .key(Uuid::from_u128(9).to_string())
        .header("aggregate-type", "vendor_order")
}

/// A new role that may do only this. Roles belong to the whole server, so each test has its own.
async fn role_that_may(scene: &Scene, may: &str) -> String {
    let (table, role) = (scene.store.names().table(), format!("confined_{}", Uuid::new_v4().simple()));
    let sql = format!("create role {role}; grant usage on schema public to {role}; grant {may} on {table} to {role}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&scene.pool).await.expect("granted");
    role
}

/// The same table for a role that may do only this.
async fn for_a_role_that_may(scene: &Scene, may: &str) -> PostgresStore {
    let role = role_that_may(scene, may).await;
    let options = (*scene.pool.connect_options()).clone().options([("role", role.as_str())]);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await.expect("connected");
    PostgresStore::with_layout(pool, scene.store.layout().clone()).expect("the layout makes sense")
}

/// Runs a dispatcher for five seconds; answers how often each message arrived.
async fn arrivals_of(store: PostgresStore) -> HashMap<Uuid, usize> {
    let seen: Arc<Mutex<HashMap<Uuid, usize>>> = Arc::default();
    let counted = seen.clone();
    let sink = callback(move |message: postrider::ClaimedMessage| {
        *counted.lock().expect("no panic").entry(message.id).or_default() += 1;
        async { Ok::<(), postrider::PublishError>(()) }
    });
    let dispatcher = Dispatcher::builder(store, sink)
        .poll_interval(Duration::from_millis(50))
        .build()
        .expect("the settings make sense");
    let stop = CancellationToken::new();
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    stop.cancel();
    drop(tokio::time::timeout(SOON, running).await.expect("it stops"));
    seen.lock().expect("no panic").clone()
}

#[tokio::test]
async fn a_relay_that_may_not_delete_does_not_publish_the_same_messages_over_and_over() {
    let scene = Scene::of(Layout::debezium()).await;
    for _ in 0..5 {
        scene.put(placed()).await;
    }
    let store = for_a_role_that_may(&scene, "select, update").await;
    let arrived = arrivals_of(store).await;
    assert!(arrived.len() == 5 && arrived.values().all(|times| *times <= 2), "{arrived:?}");
}

#[tokio::test]
async fn a_relay_that_may_not_mark_does_not_publish_the_same_messages_over_and_over() {
    let scene = Scene::of(Layout::packfinderz()).await;
    for _ in 0..5 {
        scene.put(created()).await;
    }
    let store = for_a_role_that_may(&scene, "select, update (attempt_count, last_error)").await;
    let arrived = arrivals_of(store).await;
    assert!(arrived.len() == 5 && arrived.values().all(|times| *times <= 2), "{arrived:?}");
}

#[tokio::test]
async fn one_row_whose_mark_is_refused_waits_and_the_others_are_delivered() {
    let scene = Scene::of(Layout::packfinderz()).await;
    let ids = [scene.put(created()).await, scene.put(created()).await, scene.put(created()).await];
    let trigger = format!(
        "create function refuse() returns trigger language plpgsql as $$ begin if new.id = '{}' then raise exception 'no'; end if; return new; end $$;
         create trigger refuse before update on outbox_events for each row execute function refuse()",
        ids[1]
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(&scene.pool).await.expect("made");
    let arrived = arrivals_of(scene.store.clone()).await;
    assert!(arrived.len() == 3 && arrived.values().all(|times| *times <= 2), "{arrived:?}");
}

#[tokio::test]
async fn a_mark_that_the_server_has_no_room_for_is_tried_again_and_its_claim_stays() {
    let scene = Scene::of(Layout::packfinderz()).await;
    let id = scene.put(created()).await;
    let full = "create table full_disk (is_full boolean); insert into full_disk values (true);
         create function full_disk() returns trigger language plpgsql as $$ begin
           if (select is_full from full_disk) then raise exception 'disk full' using errcode = '53100'; end if; return new; end $$;
         create trigger full_disk before update on outbox_events for each row execute function full_disk()";
    scene.run(full).await;
    let lease = scene.lease().await;
    let error = scene.store.ack(&[lease], Delivered::Keep).await.expect_err("there is no room");
    assert!(error.kind().is_transient(), "{error}");
    assert!(scene.claim().await.is_empty(), "the claim still holds its row");
    scene.run("update full_disk set is_full = false").await;
    assert_eq!(scene.store.ack(&[lease], Delivered::Keep).await.expect("acked"), [Settled::Done]);
    assert!(scene.row(id).await["published_at"].is_string());
}

#[tokio::test]
async fn a_relay_does_not_start_without_the_privileges_that_its_layout_needs() {
    let scene = Scene::of(Layout::debezium()).await;
    let role = role_that_may(&scene, "select, update").await;
    let name: String = sqlx::query_scalar("select current_database()").fetch_one(&scene.pool).await.expect("told");
    let server = Postgres::shared().await.expect("the server starts");
    let url = format!("{}?options[role]={role}", server.url(&name));
    let options = Connect { layout: Layout::debezium(), ..Connect::default() };
    let store = AnyStore::connect(&url, &options).await.expect("opened");
    let refused = store.check_relay().await.expect_err("it may not delete").to_string();
    assert!(refused.contains("grant delete"), "{refused}");
    store.check_schema().await.expect("an operator may do less");
}

#[tokio::test]
async fn a_claim_by_row_lock_takes_no_more_than_the_layout_s_batch() {
    let scene = Scene::of(Layout::packfinderz()).await;
    for _ in 0..60 {
        scene.put(created()).await;
    }
    assert_eq!(scene.claim_up_to(10, 1_000).await.len(), 50);
}

#[tokio::test]
async fn dead_rows_are_not_purged_where_nothing_says_since_when_they_are_dead() {
    let scene = Scene::of(Layout::packfinderz()).await;
    let id = scene.put(created()).await;
    scene.run("update outbox_events set created_at = now() - interval '8 days'").await;
    let lease = scene.lease().await;
    let bury = Bury { lease, error: "refused".into() };
    assert_eq!(scene.store.bury(&[bury]).await.expect("buried"), [Settled::Done]);
    let week = Duration::from_secs(7 * 24 * 3_600);
    let purge = Purge { scope: Scope::all(), finished: Finished::Dead, older_than: week, limit: 10 };
    let refused = scene.store.purge(&purge).await.expect_err("it died now").to_string();
    assert!(refused.contains("updated_at or last_attempt_at"), "{refused}");
    scene.store.purge_as("night shift", &purge).await.expect_err("it died now");
    scene.store.count_purge(&purge).await.expect_err("nobody can say");
    assert_eq!(scene.row(id).await["attempt_count"], 10);
    let delivered = Purge { finished: Finished::Delivered, ..purge };
    assert_eq!(scene.store.purge(&delivered).await.expect("published_at says it"), 0);
}

/// A relay that hangs while it publishes, then stands still. The database ends its transaction, and another relay delivers.
#[tokio::test]
async fn s3_41_the_rows_of_a_relay_that_stands_still_are_free_after_the_lock_time_out() -> Result<()> {
    let server = Postgres::shared().await?;
    let record = server.create_database().await?;
    let arrived = record.pool().await?;
    arrivals::create(&mut *arrived.acquire().await?).await?;
    let scene = Scene::of(Layout { lock_timeout: Duration::from_secs(2), ..Layout::packfinderz() }).await;
    let id = scene.put(created()).await;
    let name: String = sqlx::query_scalar("select current_database()").fetch_one(&scene.pool).await?;
    let url = server.url(&name);
    let relay = async |sink: &str| -> Result<Worker> {
        let environment = [
            ("DATABASE_URL", url.as_str()),
            ("ARRIVALS_URL", &record.url()),
            ("LAYOUT", "packfinderz"),
            ("LEASE_MS", "2000"),
            ("POLL_MS", "50"),
            ("SINK", sink),
        ];
        let relay = Worker::spawn(env!("CARGO_BIN_EXE_relay"), &[], &environment)?;
        relay.wait_for_line(|line| line == "ready", SOON).await?;
        Ok(relay)
    };
    let mut frozen = relay("hang").await?;
    frozen.wait_for_line(|line| line.starts_with("began"), SOON).await?;
    frozen.signal(Signal::SIGSTOP)?;
    let mut other = relay("record").await?;
    let count =
        async || -> Result<i64> { Ok(sqlx::query_scalar("select count(*) from arrivals").fetch_one(&arrived).await?) };
    within(Duration::from_secs(20), "its delivery", || async { count().await.is_ok_and(|now| now == 1) }).await?;
    within(SOON, "its mark", || async { scene.row(id).await["published_at"].is_string() }).await?;
    frozen.signal(Signal::SIGKILL)?;
    frozen.wait(SOON).await?;
    other.signal(Signal::SIGTERM)?;
    ensure!(other.wait(SOON).await?.code() == Some(0), "it did not stop in good order");
    Ok(())
}
