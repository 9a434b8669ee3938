//! The router's table, tables with numbers for ids, and what layouts differ in.

use std::time::Duration;

use postrider::layout::{Ability, ClaimBy, Column, IdKind, Layout, PRESETS, PayloadKind, Text, Words, preset};
use postrider::operate::{Change, Filter, Operator};
use postrider::store::{Bury, Delivered, Nack, Scope};
use postrider::{EnqueueError, Message, Names, PostgresStore, Settled, Store};
use uuid::Uuid;

use crate::scene::Scene;
use crate::tables;

#[tokio::test]
async fn s0_57_s0_68_s0_69_s0_81_a_modkit_row_goes_through_claim_ack_nack_and_dead() {
    let scene = Scene::of(Layout::modkit()).await;
    let tenant = Uuid::from_u128(7);
    let usage =
        || Message::json("mini-chat", "usage", &7).tenant(tenant).dedupe_key(format!("{tenant}/{}", Uuid::new_v4()));
    let ids = [scene.put(usage()).await, scene.put(usage()).await, scene.put(usage()).await];
    let row = scene.row(ids[0]).await;
    assert_eq!((&row["status"], &row["attempts"], &row["locked_by"]), (&"pending".into(), &0.into(), &().into()));
    let claimed = scene.claim().await;
    let lease_of = |id: Uuid| claimed.iter().find(|message| message.id == id).expect("claimed").lease;
    let row = scene.row(ids[0]).await;
    assert_eq!((&row["status"], &row["attempts"]), (&"processing".into(), &1.into()));
    assert!(
        row["locked_by"].is_string() && row["locked_until"].is_string() && row["updated_at"] != row["created_at"],
        "{row}"
    );
    scene.store.ack(&[lease_of(ids[0])], Delivered::Keep).await.expect("acked");
    let nack = Nack { lease: lease_of(ids[1]), delay: Duration::from_secs(60), error: "down".into() };
    scene.store.nack(&[nack]).await.expect("nacked");
    scene.store.bury(&[Bury { lease: lease_of(ids[2]), error: "refused".into() }]).await.expect("buried");
    let words = ["delivered", "pending", "dead"];
    for (id, word) in ids.iter().zip(words) {
        let row = scene.row(*id).await;
        assert_eq!((&row["status"], &row["attempts"], &row["locked_until"]), (&word.into(), &1.into(), &().into()));
    }
}

#[tokio::test]
async fn a_router_s_rows_are_published_with_their_headers_and_deleted() {
    let scene = Scene::of(Layout::debezium()).await;
    let theirs = "insert into outboxevent (id, aggregatetype, aggregateid, type, payload)
                  values ('00000000-0000-0000-0000-000000000001', 'order', '7', 'OrderPlaced', '{\"total\": 3}'),
                         ('00000000-0000-0000-0000-000000000002', 'order', '8', 'OrderGone', null)";
    scene.run(theirs).await;
    let claimed = scene.claim().await;
    assert_eq!(claimed.len(), 2);
    let message = claimed.iter().find(|message| message.id == Uuid::from_u128(1)).expect("claimed");
    assert_eq!((&*message.topic, message.key.as_deref()), ("order", Some("7")));
    assert_eq!(message.headers.get("event-type").map(String::as_str), Some("OrderPlaced"));
    assert_eq!(message.headers.get("id"), Some(&message.id.to_string()));
    assert_eq!(message.payload.to_value().expect("JSON")["total"], 3);
    let leases: Vec<_> = claimed.iter().map(|message| message.lease).collect();
    // The first fails, and is tried again with its attempt counted in memory.
    let nack = Nack { lease: leases[0], delay: Duration::ZERO, error: "down".into() };
    assert_eq!(scene.store.nack(&[nack]).await.expect("nacked"), [Settled::Done]);
    assert_eq!(scene.store.ack(&leases[1..], Delivered::Keep).await.expect("acked"), [Settled::Done]);
    let again = scene.claim().await;
    assert_eq!((again.len(), again[0].attempts), (1, 2));
    assert_eq!(scene.store.ack(&[again[0].lease], Delivered::Delete).await.expect("acked"), [Settled::Done]);
    let left: i64 =
        sqlx::query_scalar("select count(*) from outboxevent").fetch_one(&scene.pool).await.expect("counted");
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_message_that_is_refused_for_good_stays_where_there_is_no_word_for_it() {
    let scene = Scene::of(Layout::debezium()).await;
    scene.put(Message::json("outboxevent", "order", &7).key("7").header("event-type", "OrderPlaced")).await;
    let lease = scene.lease().await;
    assert_eq!(scene.store.bury(&[Bury { lease, error: "refused".into() }]).await.expect("answered"), [Settled::Done]);
    assert!(scene.claim().await.is_empty(), "not at once");
    let left: i64 =
        sqlx::query_scalar("select count(*) from outboxevent").fetch_one(&scene.pool).await.expect("counted");
    assert_eq!(left, 1, "nothing is lost");
}

/// A table as an ORM would have made it: numbers for ids, names in camel case, times without a zone's offset, an enum.
fn camel() -> Layout {
    let names = Names::existing(None, "camel_", "OutboxEvent").expect("a name");
    Layout {
        id_kind: IdKind::Integer,
        topic: Text::Column("eventName".into()),
        status: Some("state".into()),
        words: Some(Words {
            pending: "NEW".into(),
            failed: None,
            processing: "BUSY".into(),
            delivered: "DONE".into(),
            dead: "BROKEN".into(),
        }),
        claim: ClaimBy::LockTimeout,
        locked_at: Some("pickedAt".into()),
        lock_timeout: Duration::from_secs(30),
        attempts: Some("tries".into()),
        next_attempt_at: Some("runAt".into()),
        created_at: Some("createdAt".into()),
        last_error: Some("problem".into()),
        payload_kind: PayloadKind::Text,
        ..Layout::bare("camel", names, "id", "body")
    }
}

const CAMEL: &str = r#"
    create type "OutboxState" as enum ('NEW', 'BUSY', 'DONE', 'BROKEN');
    create table "OutboxEvent" (
      id bigserial primary key, "eventName" varchar(80) not null, body text not null, state "OutboxState" not null default 'NEW',
      "pickedAt" timestamptz, tries bigint not null default 0, "runAt" timestamptz not null default now(),
      "createdAt" timestamptz not null default now(), problem text)"#;

#[tokio::test]
async fn a_table_of_an_orm_with_numbers_for_ids_is_driven_where_it_is() {
    let (_, pool) = tables::empty().await;
    sqlx::raw_sql(CAMEL).execute(&pool).await.expect("made");
    let store = PostgresStore::with_layout(pool.clone(), camel()).expect("the layout makes sense");
    store.migrate().await.expect("the audit table is made");
    let scene = Scene { store, pool };
    scene.run(r#"insert into "OutboxEvent" (id, "eventName", body) values (1, 'placed', '{"n": 1}'), (9000000000, 'placed', '{"n": 2}')"#).await;
    let claimed = scene.claim().await;
    assert_eq!(claimed.len(), 2);
    assert_eq!(claimed[0].id.get_version_num(), 8);
    assert_ne!(claimed[0].id, claimed[1].id);
    let again = {
        let nack = Nack { lease: claimed[0].lease, delay: Duration::ZERO, error: "down".into() };
        scene.store.nack(&[nack]).await.expect("nacked");
        scene.claim().await.remove(0)
    };
    assert_eq!((again.id, again.attempts), (claimed[0].id, 2), "the same id on every attempt");
    assert_eq!(scene.store.ack(&[again.lease], Delivered::Keep).await.expect("acked"), [Settled::Done]);
    scene.store.bury(&[Bury { lease: claimed[1].lease, error: "no".into() }]).await.expect("buried");
    let states: Vec<String> = sqlx::query_scalar(r#"select state::text from "OutboxEvent" order by id"#)
        .fetch_all(&scene.pool)
        .await
        .expect("read");
    assert_eq!(states, ["DONE", "BROKEN"]);
    // An operator finds it by its event id.
    let record = scene.store.message(claimed[1].id).await.expect("asked").expect("found");
    assert_eq!(record.last_error.as_deref(), Some("no"));
    assert!(scene.store.message(Uuid::new_v4()).await.expect("asked").is_none());
    let filter = Filter { ids: Some(vec![claimed[1].id]), ..Filter::default() };
    let replay = Change { who: "night shift".into(), filter, limit: 10 };
    assert_eq!(scene.store.replay(&replay).await.expect("replayed"), [claimed[1].id]);
    let stats = scene.store.stats(&Scope::all()).await.expect("counted");
    assert_eq!((stats.pending, stats.due, stats.dead), (1, 1, 0));
    let mut transaction = scene.pool.begin().await.expect("begun");
    let refused = scene.store.outbox().enqueue(&mut transaction, Message::json("OutboxEvent", "placed", &7)).await;
    assert!(matches!(refused, Err(EnqueueError::Invalid { .. })), "the database numbers the rows: {refused:?}");
}

#[tokio::test]
async fn every_number_has_an_id_of_its_own_and_is_settled_by_it() {
    let (_, pool) = tables::empty().await;
    sqlx::raw_sql(CAMEL).execute(&pool).await.expect("made");
    let store = PostgresStore::with_layout(pool.clone(), camel()).expect("the layout makes sense");
    let scene = Scene { store, pool };
    let numbers = [i64::MIN, -2, -1, 0, 1, (1 << 60) - 1, 1 << 60, (1 << 60) + 1, 1_900_000_000_000_000_001, i64::MAX];
    for number in numbers {
        let insert = r#"insert into "OutboxEvent" (id, "eventName", body) values ($1, 'placed', '{}')"#;
        sqlx::query(insert).bind(number).execute(&scene.pool).await.expect("written");
    }
    let claimed = scene.claim().await;
    let ids: std::collections::HashSet<Uuid> = claimed.iter().map(|message| message.id).collect();
    assert_eq!(ids.len(), numbers.len());
    assert!(ids.iter().all(|id| id.get_version_num() == 8));
    for message in &claimed {
        // Moved since, so that it is found by its id.
        scene.run(r#"update "OutboxEvent" set problem = problem"#).await;
        assert_eq!(scene.store.ack(&[message.lease], Delivered::Keep).await.expect("acked"), [Settled::Done]);
    }
}

#[tokio::test]
async fn every_statement_of_every_preset_is_prepared_on_the_real_server() {
    use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};
    for name in PRESETS {
        let scene = Scene::of(preset(name).expect("known")).await;
        let mut connection = scene.pool.acquire().await.expect("connected");
        let enqueue = postrider::postgres::statements::EnqueueStatements::render(scene.store.layout());
        let statements = scene.store.statements().all();
        let inserts = [&enqueue.enqueue_one, &enqueue.enqueue_many];
        let inserts =
            inserts.into_iter().flat_map(|insert| [("enqueue", &*insert.plain), ("enqueue", &*insert.deduplicating)]);
        for (verb, sql) in statements.into_iter().chain(inserts) {
            let prepared = connection.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await;
            assert!(prepared.is_ok(), "{name} {verb}: {:?}\n{sql}", prepared.err());
        }
    }
}

#[test]
fn c22_a_layout_says_whether_updated_at_is_written() {
    let can = |layout: Layout| layout.can(Ability::Updated);
    assert!(can(Layout::default()) && can(Layout::modkit()) && can(Layout::valinor()));
    assert!(!can(Layout::talkie()) && !can(Layout::packfinderz()) && !can(Layout::debezium()));
}

#[test]
fn a_layout_is_read_from_its_description_and_written_as_it_was() {
    for name in PRESETS {
        let layout = preset(name).expect("known");
        let text = serde_json::to_string(&layout).expect("written");
        let read: Layout = serde_json::from_str(&text).expect("read");
        let read = Layout { name: layout.name.clone(), ..read.named(layout.names.clone()) };
        assert_eq!(read, layout);
    }
    let typo = r#"{"id": "id", "namespace": {"fixed": "n"}, "topic": "topic", "payload": "payload", "claim": "row_lock", "stattus": "x"}"#;
    assert!(serde_json::from_str::<Layout>(typo).expect_err("refused").to_string().contains("stattus"));
    assert_eq!(serde_json::to_value(Column::from("topic")).expect("written"), "topic");
}
