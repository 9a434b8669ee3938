//! Seed 3 on its locked table: rows are locked while they are published, and three columns are all that ever changes.

use std::collections::HashSet;
use std::time::Duration;

use postrider::operate::{Change, Filter, Operator};
use postrider::store::{Bury, Delivered, Nack, Release};
use postrider::{EnqueueError, Layout, Lease, Message, Settled, Store};
use serde_json::Value;
use uuid::Uuid;

use crate::scene::Scene;

fn event(event_type: &'static str) -> Message {
    let envelope = serde_json::json!({"version": 1, "eventId": Uuid::nil(), "occurredAt": "2026-01-01T00:00:00Z", "data": {"total": 7}});
    Message::json("packfinderz", event_type, &envelope)
        .key(Uuid::from_u128(9).to_string())
        .header("aggregate-type", "vendor_order")
}

async fn scene() -> Scene {
    Scene::of(Layout { lock_timeout: Duration::from_secs(30), ..Layout::packfinderz() }).await
}

fn nack(lease: Lease) -> Nack {
    Nack { lease, delay: Duration::ZERO, error: "no answer".into() }
}

/// Everything of a row but the three columns that may change.
async fn locked_columns(scene: &Scene, id: Uuid) -> Value {
    let mut row = scene.row(id).await;
    for column in ["published_at", "attempt_count", "last_error"] {
        row.as_object_mut().expect("a row").remove(column);
    }
    row
}

/// How a row looks from another session, and whether it can be locked there.
async fn is_free(scene: &Scene, id: Uuid) -> bool {
    let sql = "select 1 from outbox_events where id = $1 for update skip locked";
    sqlx::query(sql).bind(id).fetch_optional(&scene.pool).await.expect("looked").is_some()
}

#[tokio::test]
async fn s3_09_types_are_enums_of_the_database_and_other_words_are_refused_before_sql() {
    let scene = scene().await;
    let insert = "insert into outbox_events (id, event_type, aggregate_type, aggregate_id, payload_json)
                  values (gen_random_uuid(), 'order_exploded', 'store', gen_random_uuid(), '{}')";
    assert!(sqlx::query(insert).execute(&scene.pool).await.is_err());
    let mut transaction = scene.pool.begin().await.expect("begun");
    for wrong in [
        event("order_exploded"),
        event("order_created").header("aggregate-type", "rocket"),
        event("order_created").key("no uuid"),
        Message::json("packfinderz", "order_created", &7).key(Uuid::nil().to_string()),
        event("order_created").dedupe_key("k"),
        event("order_created").deliver_after(Duration::from_secs(1)),
    ] {
        let refused = scene.store.outbox().enqueue(&mut transaction, wrong).await;
        assert!(matches!(refused, Err(EnqueueError::Invalid { .. })), "{refused:?}");
    }
    scene
        .store
        .outbox()
        .enqueue(&mut transaction, event("order_created"))
        .await
        .expect("the transaction is still usable");
    transaction.commit().await.expect("committed");
}

#[tokio::test]
async fn s3_12_only_three_columns_ever_change() {
    let scene = scene().await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(scene.put(event("order_created")).await);
    }
    let mut before = Vec::new();
    for id in &ids {
        before.push(locked_columns(&scene, *id).await);
    }
    let claimed = scene.claim().await;
    let [acked, failed, buried, released, extended, late] = [0, 1, 2, 3, 4, 5].map(|at| claimed[at].lease);
    let store = &scene.store;
    assert!(store.extend(&[extended], Duration::from_secs(30)).await.expect("renewed")[0].is_some());
    let done = |settled: Result<Vec<Settled>, _>| settled.expect("answered").iter().all(|one| *one == Settled::Done);
    assert!(done(store.ack(&[acked, extended, late], Delivered::Keep).await));
    assert!(done(store.nack(&[nack(failed)]).await));
    assert!(done(store.bury(&[Bury { lease: buried, error: "refused".into() }]).await));
    let release = Release { lease: released, delay: Duration::ZERO, error: Some("not now".into()) };
    assert!(done(store.release(&[release]).await));
    let replay = Change { who: "night shift".into(), filter: Filter::default(), limit: 10 };
    assert_eq!(store.replay(&replay).await.expect("replayed"), [buried.id]);
    for (id, before) in ids.iter().zip(&before) {
        assert_eq!(&locked_columns(&scene, *id).await, before);
    }
}

#[tokio::test]
async fn s3_15_s3_38_a_message_has_everything_of_its_row() {
    let scene = scene().await;
    let id = scene.put(event("payment_settled")).await;
    let first = scene.claim().await.remove(0);
    scene.store.nack(&[nack(first.lease)]).await.expect("nacked");
    let again = scene.claim().await.remove(0);
    for message in [&first, &again] {
        assert_eq!(message.id, id, "the row's id is the event's, on every attempt");
        assert_eq!(&*message.topic, "payment_settled");
        assert_eq!(message.headers.get("aggregate-type").map(String::as_str), Some("vendor_order"));
        assert_eq!(message.key.as_deref(), Some(&*Uuid::from_u128(9).to_string()));
        assert_eq!(message.payload.to_value().expect("JSON")["data"]["total"], 7);
        assert!(message.created_at_micros > 0);
    }
    assert_eq!(first.payload, again.payload);
    assert_eq!((first.attempts, again.attempts), (1, 2));
}

#[tokio::test]
async fn s3_33_unpublished_rows_are_taken_in_the_order_of_creation() {
    let scene = scene().await;
    let mut ids = Vec::new();
    for minutes in [1, 3, 2] {
        let id = scene.put(event("order_created")).await;
        let older = "update outbox_events set created_at = now() - make_interval(mins => $2) where id = $1";
        sqlx::query(older).bind(id).bind(minutes).execute(&scene.pool).await.expect("made older");
        ids.push(id);
    }
    let mut other = scene.pool.begin().await.expect("begun");
    let lock = sqlx::query("select from outbox_events where id = $1 for update").bind(ids[2]);
    lock.execute(&mut *other).await.expect("locked");
    let claimed: Vec<Uuid> = scene.claim_up_to(10, 2).await.iter().map(|message| message.id).collect();
    assert_eq!(claimed, [ids[1], ids[0]], "the oldest first, and past the one that somebody has locked");
}

#[tokio::test]
async fn s3_34_s3_35_rows_stay_locked_while_they_are_published_and_no_marker_is_written() {
    let scene = scene().await;
    let id = scene.put(event("order_created")).await;
    let before = scene.row(id).await;
    let lease = scene.lease().await;
    assert_eq!(scene.row(id).await, before, "nothing is written at the claim");
    assert!(!is_free(&scene, id).await);
    assert!(scene.claim().await.is_empty(), "nobody else gets it");
    assert_eq!(scene.store.ack(&[lease], Delivered::Keep).await.expect("acked"), [Settled::Done]);
    assert!(scene.row(id).await["published_at"].is_string());
    assert!(is_free(&scene, id).await);
}

#[tokio::test]
async fn s3_36_a_failure_counts_and_has_a_bounded_error() {
    let scene = scene().await;
    let id = scene.put(event("order_created")).await;
    let lease = scene.lease().await;
    let error = "é".repeat(3_000);
    scene.store.nack(&[Nack { error, ..nack(lease) }]).await.expect("nacked");
    let row = scene.row(id).await;
    assert_eq!(row["attempt_count"], 1);
    assert!(row["published_at"].is_null());
    assert_eq!(row["last_error"].as_str().map(|text| text.chars().count()), Some(500));
}

#[tokio::test]
async fn s3_37_a_row_at_its_limit_is_left_alone() {
    let scene = scene().await;
    let id = scene.put(event("order_created")).await;
    for attempt in 1..=10 {
        let lease = scene.lease().await;
        assert_eq!(lease.attempt, attempt);
        scene.store.nack(&[nack(lease)]).await.expect("nacked");
    }
    assert!(scene.claim_up_to(10, 10).await.is_empty());
    let dead = scene.store.dead(&Filter::default(), None, 10).await.expect("listed");
    assert_eq!(dead.iter().map(|record| record.id).collect::<Vec<_>>(), [id]);
    assert_eq!(scene.store.stats(&postrider::store::Scope::all()).await.expect("counted").dead, 1);
}

#[tokio::test]
async fn s3_37_the_table_s_number_of_attempts_holds_whatever_the_dispatcher_says() {
    for dispatchers in [5, 20] {
        let scene = scene().await;
        scene.put(event("order_created")).await;
        let mut attempts = 0;
        while let [message] = &scene.claim_up_to(dispatchers, 10).await[..] {
            assert_eq!(message.allowed_attempts(dispatchers), 10);
            attempts += 1;
            scene.store.nack(&[nack(message.lease)]).await.expect("nacked");
        }
        assert_eq!(attempts, 10);
        assert_eq!(scene.store.stats(&postrider::store::Scope::all()).await.expect("counted").dead, 1);
    }
}

#[tokio::test]
async fn s3_35_published_at_is_the_time_of_the_confirmation_not_of_the_claim() {
    let scene = scene().await;
    let id = scene.put(event("order_created")).await;
    let lease = scene.lease().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let now: String =
        sqlx::query_scalar("select to_jsonb(clock_timestamp()) #>> '{}'").fetch_one(&scene.pool).await.expect("told");
    scene.store.ack(&[lease], Delivered::Keep).await.expect("acked");
    let published = scene.row(id).await["published_at"].as_str().map(str::to_owned).expect("set");
    assert!(published > now, "{published} is before {now}");
}

#[tokio::test]
async fn marks_of_a_claim_that_is_given_up_stand() {
    let scene = Scene::of(Layout { lock_timeout: Duration::from_secs(30), ..Layout::packfinderz() }).await;
    let (one, other) = (scene.put(event("order_created")).await, scene.put(event("order_created")).await);
    let pool = scene.pool.clone();
    let own = sqlx::postgres::PgPoolOptions::new().max_connections(4).connect_with((*pool.connect_options()).clone());
    let store = postrider::PostgresStore::with_layout(own.await.expect("connected"), scene.store.layout().clone())
        .expect("fine");
    let relay = Scene { pool: store.pool().clone(), store };
    let claimed = relay.claim().await;
    let lease = claimed.iter().find(|message| message.id == one).expect("claimed").lease;
    assert_eq!(relay.store.ack(&[lease], Delivered::Keep).await.expect("acked"), [Settled::Done]);
    // The process ends in good order while the other message is still under way.
    tokio::time::timeout(Duration::from_secs(10), relay.pool.close()).await.expect("closing a pool waits for no claim");
    assert!(scene.row(one).await["published_at"].is_string());
    assert!(scene.row(other).await["published_at"].is_null() && is_free(&scene, other).await);
}

#[tokio::test]
async fn the_table_may_be_in_a_schema_that_is_not_in_the_search_path() {
    let names = postrider::Names::existing(Some("pack"), "pack_", "outbox_events").expect("a name");
    let scene = Scene::of(Layout::packfinderz().named(names)).await;
    scene.put(event("order_created")).await;
    let claimed = scene.claim().await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(scene.store.ack(&[claimed[0].lease], Delivered::Keep).await.expect("acked"), [Settled::Done]);
}

#[tokio::test]
async fn a_backoff_is_kept_in_memory() {
    let scene = scene().await;
    scene.put(event("order_created")).await;
    let lease = scene.lease().await;
    let delay = Duration::from_millis(300);
    scene.store.nack(&[Nack { delay, ..nack(lease) }]).await.expect("nacked");
    assert!(scene.claim().await.is_empty());
    let next = scene.store.next_due(&postrider::store::Scope::all()).await.expect("asked").expect("one waits");
    assert!(next <= delay, "{next:?}");
    tokio::time::sleep(delay).await;
    assert_eq!(scene.claim().await.len(), 1);
}

#[tokio::test]
async fn a_mark_that_the_database_refuses_takes_no_other_with_it() {
    let scene = scene().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(scene.put(event("order_created")).await);
    }
    let trigger = format!(
        "create function refuse() returns trigger language plpgsql as $$ begin if new.id = '{}' then raise exception 'no'; end if; return new; end $$;
         create trigger refuse before update on outbox_events for each row execute function refuse()",
        ids[1]
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(&scene.pool).await.expect("made");
    let claimed = scene.claim().await;
    let leases: Vec<Lease> = claimed.iter().map(|message| message.lease).collect();
    let settled = scene.store.ack(&leases, Delivered::Keep).await.expect("answered");
    let done: HashSet<Uuid> = leases
        .iter()
        .zip(&settled)
        .filter(|(_, settled)| **settled == Settled::Done)
        .map(|(lease, _)| lease.id)
        .collect();
    assert_eq!(done, HashSet::from([ids[0], ids[2]]));
    assert!(scene.row(ids[0]).await["published_at"].is_string() && scene.row(ids[2]).await["published_at"].is_string());
    assert!(scene.row(ids[1]).await["published_at"].is_null());
    assert!(scene.claim().await.is_empty(), "not at once: nothing says that it was published");
    let next = scene.store.next_due(&postrider::store::Scope::all()).await.expect("asked").expect("one waits");
    assert!(next > Duration::from_secs(30), "{next:?}");
}

#[tokio::test]
async fn s3_41_after_a_lost_connection_rows_are_free_at_once() {
    let scene = scene().await;
    let id = scene.put(event("order_created")).await;
    let lease = scene.lease().await;
    let kill = "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()";
    sqlx::query(kill).execute(&scene.pool).await.expect("killed");
    let answer = scene.store.ack(&[lease], Delivered::Keep).await;
    assert!(!matches!(answer.as_deref(), Ok([Settled::Done])), "{answer:?}");
    assert_eq!(scene.store.ack(&[lease], Delivered::Keep).await.expect("answered"), [Settled::LeaseLost]);
    let again = scene.lease().await;
    assert_eq!(again.id, id);
}

#[tokio::test]
async fn a_claim_that_lasts_too_long_is_given_up() {
    let scene = Scene::of(Layout { lock_timeout: Duration::from_secs(1), ..Layout::packfinderz() }).await;
    let id = scene.put(event("order_created")).await;
    let request_of_a_second = |worker| postrider::store::ClaimRequest {
        scope: postrider::store::Scope::all(),
        worker,
        limit: 10,
        max_bytes: u64::MAX,
        lease: Duration::from_secs(1),
        max_attempts: 10,
        order: postrider::store::ClaimOrder::Due,
        waits: postrider::store::Order::None,
        followers: 0,
        thorough: false,
    };
    let claimed = scene.store.claim(&request_of_a_second(Uuid::new_v4())).await.expect("claimed").messages;
    assert!(!is_free(&scene, id).await);
    testkit::within(Duration::from_secs(10), "its end", || is_free(&scene, id)).await.expect("given up");
    assert_eq!(scene.store.ack(&[claimed[0].lease], Delivered::Keep).await.expect("answered"), [Settled::LeaseLost]);
    let too_long =
        postrider::store::ClaimRequest { lease: Duration::from_secs(60), ..request_of_a_second(Uuid::new_v4()) };
    let refused = scene.store.claim(&too_long).await.expect_err("longer than the layout allows").to_string();
    assert!(refused.contains("lock_timeout"), "{refused}");
}

#[tokio::test]
async fn a_claim_or_a_mark_that_nobody_waited_for_keeps_no_lock() {
    let scene = scene().await;
    let id = scene.put(event("order_created")).await;
    for step in 0..60 {
        let patience = Duration::from_micros(100 * step);
        if let Ok(claimed) = tokio::time::timeout(patience, scene.claim()).await {
            let releases: Vec<Release> = claimed
                .iter()
                .map(|message| Release { lease: message.lease, delay: Duration::ZERO, error: None })
                .collect();
            let _cut_off = tokio::time::timeout(patience, scene.store.release(&releases)).await;
            // Whatever was cut off is done by whoever asks again.
            scene.store.release(&releases).await.expect("answered");
        }
        testkit::within(Duration::from_secs(10), "a free row", || is_free(&scene, id)).await.expect("no lock is left");
    }
}

#[tokio::test]
async fn s3_43_several_publishers_share_the_rows() {
    let scene = scene().await;
    for _ in 0..120 {
        scene.put(event("order_created")).await;
    }
    let publishers = (0..3).map(|_| {
        let store =
            postrider::PostgresStore::with_layout(scene.pool.clone(), scene.store.layout().clone()).expect("fine");
        let scene = Scene { store, pool: scene.pool.clone() };
        tokio::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..10 {
                let leases: Vec<Lease> = scene.claim_up_to(10, 20).await.iter().map(|message| message.lease).collect();
                scene.store.ack(&leases, Delivered::Keep).await.expect("acked");
                seen.extend(leases.iter().map(|lease| lease.id));
            }
            seen
        })
    });
    let mut all = Vec::new();
    for publisher in publishers.collect::<Vec<_>>() {
        all.extend(publisher.await.expect("no publisher panics"));
    }
    assert_eq!((all.len(), all.iter().collect::<HashSet<_>>().len()), (120, 120));
}
