//! Marks that the database refuses, claims that nobody ends, and what a claim by row lock takes at most.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use postrider::layout::Layout;
use postrider::store::{Bury, ClaimOrder, ClaimRequest, Delivered, Finished, LARGEST_CLAIM, Nack, Order, Purge, Scope};
use postrider::{
    AnyStore, ClaimedMessage, Connect, Dispatcher, Message, Operator, PostgresStore, Settled, Store, callback,
};
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

/// A claim by the same worker, again and again.
async fn claim_as(scene: &Scene, worker: Uuid, limit: u32) -> Vec<ClaimedMessage> {
    let request = ClaimRequest {
        scope: Scope::all(),
        worker,
        limit,
        max_bytes: u64::MAX,
        lease: Duration::from_secs(1),
        max_attempts: 10,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: LARGEST_CLAIM,
        thorough: false,
    };
    scene.store.claim(&request).await.expect("the store claims").messages
}

#[tokio::test]
async fn r13_a_stale_settle_of_the_same_relay_changes_nothing_after_it_has_claimed_the_row_again() {
    for layout in [Layout::packfinderz(), Layout::debezium()] {
        let message = || if layout.delivered_at.is_some() { created() } else { placed() };
        let scene = Scene::of(Layout { lock_timeout: Duration::from_secs(1), ..layout.clone() }).await;
        let id = scene.put(message()).await;
        let worker = Uuid::new_v4();
        let stale = claim_as(&scene, worker, 10).await[0].lease;
        // The claim is given up after the time-out, and its attempt is not counted.
        let live = loop {
            if let [message] = &claim_as(&scene, worker, 10).await[..] {
                break message.lease;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!((live.id, live.attempt, live.worker), (stale.id, stale.attempt, stale.worker));
        let nack = Nack { lease: stale, delay: Duration::ZERO, error: "stale".into() };
        assert_eq!(scene.store.nack(&[nack]).await.expect("answered"), [Settled::LeaseLost]);
        let bury = Bury { lease: stale, error: "stale".into() };
        assert_eq!(scene.store.bury(&[bury]).await.expect("answered"), [Settled::LeaseLost]);
        assert_eq!(scene.store.extend(&[stale], Duration::from_secs(1)).await.expect("answered"), [None]);
        // Both in one call: each has its own answer.
        let both = scene.store.ack(&[stale, live], Delivered::Keep).await.expect("answered");
        assert_eq!(both, [Settled::LeaseLost, Settled::Done], "{id}");
    }
}

/// Such a table has no place for a backoff. So many may be put off that no more are remembered; then nothing else is claimed, and none of them early.
#[tokio::test]
async fn however_many_messages_are_put_off_none_of_them_is_published_before_its_time() {
    let scene = Scene::of(Layout { batch: 1_000, ..Layout::debezium() }).await;
    scene
        .run(
            "insert into outboxevent (id, aggregatetype, aggregateid, type, payload)
             select gen_random_uuid(), 'order', '7', 'placed', '{}' from generate_series(1, 10500)",
        )
        .await;
    let (worker, mut seen) = (Uuid::new_v4(), HashSet::new());
    loop {
        let claimed = claim_as(&scene, worker, 1_000).await;
        if claimed.is_empty() {
            break;
        }
        let fresh = claimed.iter().filter(|message| seen.insert(message.id)).count();
        assert_eq!(fresh, claimed.len(), "after {}", seen.len());
        let delay = Duration::from_secs(3_600);
        let nack = |message: &ClaimedMessage| Nack { lease: message.lease, delay, error: "down".into() };
        let nacks: Vec<Nack> = claimed.iter().map(nack).collect();
        scene.store.nack(&nacks).await.expect("nacked");
    }
    assert_eq!(seen.len(), 10_000);
    let next = scene.store.next_due(&Scope::all()).await.expect("asked").expect("the first of them is due then");
    assert!(next > Duration::from_secs(3_000), "{next:?}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The last message's mark is made, and whoever waits for the commit loses patience.
#[tokio::test]
async fn marks_that_are_lost_with_a_commit_that_nobody_waited_for_are_told() {
    // With a single subscriber in the process, an event that another test's thread meets first would count as wanted by nobody.
    let _set_by_another_test = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    let scene = Scene::of(Layout::packfinderz()).await;
    scene.put(created()).await;
    scene.put(created()).await;
    scene
        .run(
            "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(10); raise exception 'no'; end $$;
             create constraint trigger slow after update on outbox_events deferrable initially deferred for each row execute function slow()",
        )
        .await;
    let leases: Vec<_> = scene.claim().await.iter().map(|message| message.lease).collect();
    assert_eq!(scene.store.ack(&leases[..1], Delivered::Keep).await.expect("marked"), [Settled::Done]);
    let commits = || async {
        let asleep =
            "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
        sqlx::query_scalar(asleep).fetch_one(&scene.pool).await.is_ok_and(|asleep: i64| asleep == 1)
    };
    tokio::select! {
        answer = scene.store.ack(&leases[1..], Delivered::Keep) => panic!("it was answered: {answer:?}"),
        waited = within(SOON, "a commit", commits) => waited.expect("it commits"),
    }
    let told = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("UTF-8");
    let line = told.lines().find(|line| line.contains("counted as settled"));
    assert!(line.is_some_and(|line| line.contains("messages=2")), "{told}");
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
