//! Seed 2 on its own table.

use std::collections::HashSet;
use std::time::Duration;

use postrider::operate::{Change, Filter, Operator};
use postrider::store::{Bury, Delivered, Finished, Nack, Purge, Release, Scope};
use postrider::{Dispatcher, Enqueued, Layout, Lease, Message, PublishError, Settled, Store, callback};
use sqlx::Row;
use testkit::show::Running;
use uuid::Uuid;

use crate::scene::Scene;

fn message() -> Message {
    Message::json("outbox", "chat.message.created", &serde_json::json!({"text": "hello"})).key("room-7")
}

async fn scene() -> Scene {
    Scene::of(Layout { lock_timeout: Duration::from_secs(30), ..Layout::talkie() }).await
}

fn nack(lease: Lease) -> Nack {
    Nack { lease, delay: Duration::from_secs(60), error: "broker down".into() }
}

/// Notes every change of a status.
const WATCH: &str = "
    create table arrows (no bigserial, id uuid, before text, after text);
    create function note_arrow() returns trigger language plpgsql as $$
    begin
      if tg_op = 'INSERT' then insert into arrows (id, after) values (new.id, new.status);
      elsif old.status <> new.status then insert into arrows (id, before, after) values (new.id, old.status, new.status);
      end if;
      return new;
    end $$;
    create trigger arrows after insert or update on outbox for each row execute function note_arrow()";

async fn arrows(scene: &Scene) -> HashSet<(Option<String>, String)> {
    let all = sqlx::query_as("select before, after from arrows").fetch_all(&scene.pool).await;
    all.expect("they were noted").into_iter().collect()
}

#[tokio::test]
async fn s2_04_pending_and_failed_rows_are_claimed_once_they_are_due() {
    let scene = scene().await;
    let insert = "insert into outbox (id, topic, idempotency_key, payload_json, status, next_attempt_at) values
        ('00000000-0000-0000-0000-000000000001', 't', '1', '{}', 'pending', now() - interval '1 s'),
        ('00000000-0000-0000-0000-000000000002', 't', '2', '{}', 'failed', now() - interval '2 s'),
        ('00000000-0000-0000-0000-000000000003', 't', '3', '{}', 'pending', now() + interval '1 h'),
        ('00000000-0000-0000-0000-000000000004', 't', '4', '{}', 'failed', now() + interval '1 h'),
        ('00000000-0000-0000-0000-000000000005', 't', '5', '{}', 'published', now() - interval '1 s'),
        ('00000000-0000-0000-0000-000000000006', 't', '6', '{}', 'dead_lettered', now() - interval '1 s')";
    scene.run(insert).await;
    let claimed: HashSet<Uuid> = scene.claim().await.iter().map(|message| message.id).collect();
    assert_eq!(claimed, HashSet::from([Uuid::from_u128(1), Uuid::from_u128(2)]));
}

#[tokio::test]
async fn s2_05_s2_10_a_claimed_row_is_publishing_and_dated_and_returned() {
    let scene = scene().await;
    let id = scene.put(message()).await;
    let claimed = scene.claim().await;
    let [message] = &claimed[..] else { panic!("{claimed:?}") };
    assert_eq!((message.id, &*message.topic, message.key.as_deref()), (id, "chat.message.created", Some("room-7")));
    assert_eq!(message.payload.to_value().expect("JSON")["text"], "hello");
    let row = scene.row(id).await;
    assert_eq!(row["status"], "publishing");
    assert!(row["last_attempt_at"].is_string(), "{row}");
}

#[tokio::test]
async fn s2_07_a_published_row_has_its_time_and_no_retry() {
    let scene = scene().await;
    let id = scene.put(message()).await;
    let lease = scene.lease().await;
    assert_eq!(scene.store.ack(&[lease], Delivered::Keep).await.expect("acked"), [Settled::Done]);
    let row = scene.row(id).await;
    assert_eq!((&row["status"], &row["retry_count"]), (&"published".into(), &0.into()));
    assert!(row["published_at"].is_string() && row["last_attempt_at"].is_string(), "{row}");
}

#[tokio::test]
async fn s2_08_a_failed_row_has_its_retry_its_error_and_its_next_time() {
    let scene = scene().await;
    let id = scene.put(message()).await;
    let lease = scene.lease().await;
    assert_eq!(scene.store.nack(&[nack(lease)]).await.expect("nacked"), [Settled::Done]);
    let row = scene.row(id).await;
    assert_eq!((&row["status"], &row["retry_count"]), (&"failed".into(), &1.into()));
    assert_eq!(row["last_error"], "broker down");
    assert!(row["published_at"].is_null() && scene.claim().await.is_empty(), "it waits: {row}");
    scene.run("update outbox set next_attempt_at = now()").await;
    let second = scene.lease().await;
    assert_eq!(second.attempt, 2);
    assert_eq!(scene.store.ack(&[second], Delivered::Keep).await.expect("acked"), [Settled::Done]);
    assert_eq!(scene.row(id).await["retry_count"], 1, "one failure, then a delivery");
}

#[tokio::test]
async fn s2_09_a_row_that_exceeds_its_retries_is_dead_lettered() {
    let scene = scene().await;
    let id = scene.put(message()).await;
    for attempt in 1..=3 {
        let claimed = scene.claim_up_to(3, 10).await;
        assert_eq!(claimed[0].attempts, attempt);
        let lease = claimed[0].lease;
        let settled = match attempt {
            3 => scene.store.bury(&[Bury { lease, error: "refused".into() }]).await,
            _ => scene.store.nack(&[Nack { delay: Duration::ZERO, ..nack(lease) }]).await,
        };
        assert_eq!(settled.expect("settled"), [Settled::Done]);
    }
    let row = scene.row(id).await;
    assert_eq!(
        (&row["status"], &row["retry_count"], &row["last_error"]),
        (&"dead_lettered".into(), &3.into(), &"refused".into())
    );
    assert!(scene.claim_up_to(10, 10).await.is_empty());
}

#[tokio::test]
async fn s2_09_a_dispatcher_dead_letters_a_row_at_the_limit_and_not_before() {
    let scene = scene().await;
    let id = scene.put(message()).await;
    let sink = callback(|_| async { Err::<(), _>(PublishError::retry("broker down")) });
    let dispatcher = Dispatcher::builder(scene.store.clone(), sink)
        .lease(Duration::from_secs(30))
        .poll_interval(Duration::from_millis(20))
        .backoff(Duration::from_millis(10), Duration::from_millis(40))
        .max_attempts(3);
    scene.run(WATCH).await;
    let running = Running::start(dispatcher.build().expect("it can work"));
    let dead = async || scene.row(id).await["status"] == "dead_lettered";
    testkit::within(Duration::from_secs(20), "a dead letter", dead).await.expect("it is given up");
    running.stop().await.expect("it stops");
    let row = scene.row(id).await;
    assert_eq!((&row["retry_count"], &row["last_error"]), (&3.into(), &"broker down".into()));
    let failures = "select count(*) from arrows where (before, after) = ('publishing', 'failed')";
    let failures: i64 = sqlx::query_scalar(failures).fetch_one(&scene.pool).await.expect("counted");
    assert_eq!(failures, 3, "the decision is the dispatcher's, at the third failure");
}

#[tokio::test]
async fn s2_14_only_the_five_words_can_be_stored() {
    let scene = scene().await;
    for word in ["pending", "publishing", "published", "failed", "dead_lettered"] {
        let insert = "insert into outbox (topic, idempotency_key, payload_json, status) values ('t', $1, '{}', $1)";
        sqlx::query(insert).bind(word).execute(&scene.pool).await.expect("one of the five");
    }
    let other =
        "insert into outbox (topic, idempotency_key, payload_json, status) values ('t', 'k', '{}', 'processing')";
    assert!(sqlx::query(other).execute(&scene.pool).await.is_err());
}

#[tokio::test]
async fn s2_15_a_topic_has_an_idempotency_key_once() {
    let scene = scene().await;
    let outbox = scene.store.outbox();
    let mut transaction = scene.pool.begin().await.expect("begun");
    let first = outbox.enqueue(&mut transaction, message().dedupe_key("k")).await.expect("new");
    let again = outbox.enqueue(&mut transaction, message().dedupe_key("k")).await.expect("there already");
    assert_eq!(again, Enqueued::Already(first.id()));
    let other = Message::json("outbox", "chat.room.closed", &7).dedupe_key("k");
    assert!(outbox.enqueue(&mut transaction, other).await.expect("another topic").is_new());
    assert!(outbox.enqueue(&mut transaction, message()).await.expect("a key of its own").is_new());
    transaction.commit().await.expect("committed");
}

#[tokio::test]
async fn s2_18_a_row_moves_only_as_the_picture_says() {
    let scene = scene().await;
    scene.run(WATCH).await;
    for _ in 0..5 {
        scene.put(message()).await;
    }
    let claimed = scene.claim_up_to(10, 4).await;
    let [published, failed, refused, released] = [0, 1, 2, 3].map(|at| claimed[at].lease);
    let store = &scene.store;
    store.ack(&[published], Delivered::Keep).await.expect("acked");
    store.nack(&[Nack { delay: Duration::ZERO, ..nack(failed) }]).await.expect("nacked");
    store.bury(&[Bury { lease: refused, error: "no".into() }]).await.expect("buried");
    store.release(&[Release { lease: released, delay: Duration::ZERO, error: None }]).await.expect("released");
    // The others crash on their last allowed attempt, and the sweep gives them up.
    assert_eq!(scene.claim_up_to(10, 100).await.len(), 3);
    scene.run("update outbox set last_attempt_at = last_attempt_at - interval '1 hour'").await;
    let swept = store.sweep(&Scope::all(), 1, 100).await.expect("swept");
    assert_eq!(swept.buried.len(), 3);
    let arrow = |before: &str, after: &str| (Some(before.to_owned()), after.to_owned());
    let picture = HashSet::from([
        (None, "pending".to_owned()),
        arrow("pending", "publishing"),
        arrow("publishing", "published"),
        arrow("publishing", "failed"),
        arrow("failed", "publishing"),
        arrow("failed", "dead_lettered"),
    ]);
    assert_eq!(arrows(&scene).await, picture);
}

#[tokio::test]
async fn s2_19_s2_20_dead_lettered_rows_stay_and_are_shown_resent_and_purged() {
    let scene = scene().await;
    let (one, other) = (scene.put(message()).await, scene.put(message()).await);
    for claimed in scene.claim().await {
        scene.store.bury(&[Bury { lease: claimed.lease, error: "no such topic".into() }]).await.expect("buried");
    }
    let dead = scene.store.dead(&Filter::default(), None, 10).await.expect("listed");
    assert_eq!(dead.len(), 2);
    assert_eq!(dead[0].last_error.as_deref(), Some("no such topic"));
    let change =
        Change { who: "night shift".into(), filter: Filter { ids: Some(vec![one]), ..Filter::default() }, limit: 10 };
    assert_eq!(scene.store.replay(&change).await.expect("resent"), [one]);
    assert_eq!(scene.row(one).await["status"], "pending");
    let old = Purge { scope: Scope::all(), finished: Finished::Dead, older_than: Duration::ZERO, limit: 10 };
    assert_eq!(scene.store.purge(&old).await.expect("purged"), 1);
    assert!(scene.store.message(other).await.expect("looked for").is_none());
}

#[tokio::test]
async fn s2_26_the_two_queries_of_the_operators_run() {
    let scene = scene().await;
    let ids = [scene.put(message()).await, scene.put(message()).await, scene.put(message()).await];
    for claimed in scene.claim().await {
        let lease = claimed.lease;
        if claimed.id == ids[0] {
            scene.store.bury(&[Bury { lease, error: "no".into() }]).await.expect("buried");
        } else {
            let delay = if claimed.id == ids[1] { Duration::ZERO } else { Duration::from_secs(3_600) };
            scene.store.nack(&[Nack { delay, ..nack(lease) }]).await.expect("nacked");
        }
    }
    let found = async |sql: &'static str| -> Vec<Uuid> {
        sqlx::query_scalar(sql).fetch_all(&scene.pool).await.expect("it runs")
    };
    let gone_wrong =
        found("select id from outbox where status in ('failed', 'dead_lettered') order by next_attempt_at").await;
    assert_eq!(gone_wrong, ids, "the one that is tried again last comes last");
    assert_eq!(found("select id from outbox where status = 'failed' and next_attempt_at <= now()").await, [ids[1]]);
}

#[tokio::test]
async fn s2_27_a_row_left_publishing_by_a_crash_is_claimed_again() {
    let scene = scene().await;
    let id = scene.put(message()).await;
    let crashed = scene.lease().await;
    assert!(scene.claim().await.is_empty());
    scene.run("update outbox set last_attempt_at = last_attempt_at - interval '31 seconds'").await;
    let again = scene.lease().await;
    assert_eq!((again.id, again.attempt), (id, 2), "a crash counts");
    assert_eq!(scene.store.ack(&[crashed], Delivered::Keep).await.expect("answered"), [Settled::LeaseLost]);
    assert_eq!(scene.store.ack(&[again], Delivered::Keep).await.expect("answered"), [Settled::Done]);
}

#[tokio::test]
async fn s2_27_a_row_that_an_older_publisher_left_without_a_time_is_claimed_again() {
    let scene = scene().await;
    scene.put(message()).await;
    scene.run("update outbox set status = 'publishing'").await;
    assert_eq!(scene.claim().await.len(), 1);
}

#[tokio::test]
async fn s2_17_claims_and_the_list_of_dead_letters_use_an_index() {
    let scene = scene().await;
    scene
        .run(
            "insert into outbox (topic, idempotency_key, payload_json, status, published_at)
             select 't', n::text, '{}', 'published', now() from generate_series(1, 20000) as n;
             insert into outbox (topic, idempotency_key, payload_json) select 't', 'p' || n, '{}' from generate_series(1, 50) as n;
             analyze outbox",
        )
        .await;
    // The statements as the store has them, with plans that hold for every parameter.
    let mut connection = scene.pool.acquire().await.expect("connected");
    let mut plans = Vec::new();
    for (name, sql) in scene.store.statements().all() {
        if !["claim", "dead", "next_due", "sweep"].contains(&name) {
            continue;
        }
        let prepare = format!("set plan_cache_mode = force_generic_plan; prepare checked as {sql}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(prepare)).execute(&mut *connection).await.expect(name);
        let count = "select cardinality(parameter_types) from pg_prepared_statements where name = 'checked'";
        let count: i32 = sqlx::query_scalar(count).fetch_one(&mut *connection).await.expect("known");
        let nulls = vec!["null"; usize::try_from(count).expect("a number")].join(", ");
        let explain = format!("explain execute checked({nulls})");
        let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(explain)).fetch_all(&mut *connection).await.expect(name);
        let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        plans.push((name, lines.join("\n")));
        sqlx::raw_sql("deallocate checked").execute(&mut *connection).await.expect("gone");
    }
    assert_eq!(plans.len(), 4, "{plans:?}");
    for (name, plan) in &plans {
        assert!(!plan.contains("Seq Scan on outbox"), "{name} reads the whole table:\n{plan}");
    }
    let uses = |name: &str, index: &str| plans.iter().any(|(of, plan)| *of == name && plan.contains(index));
    assert!(uses("claim", "outbox_batch_idx") && uses("claim", "outbox_left_idx"), "{plans:?}");
    assert!(uses("dead", "outbox_dlq_idx"), "{plans:?}");
}
