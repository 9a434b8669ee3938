//! Rows that are no messages: what was never written has something to stand for it, what cannot be read is given up where everybody sees it, and
//! the rows beside it are delivered. The same on every database.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider::layout::{ClaimBy, Layout, Text, Words};
use postrider::operate::{Change, Filter, Operator};
use postrider::store::{ClaimOrder, ClaimRequest, Delivered, LARGEST_CLAIM, Order, Scope};
use postrider::{ClaimedMessage, MySqlStore, Names, PostgresStore, Settled, SqliteStore, Store};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Executor};
use tempfile::TempDir;
use testkit::MariaDb;
use uuid::Uuid;

use crate::tables;

/// A table where hardly anything must be written. `two_steps` has rows marked as failed before they are dead.
fn loose(two_steps: bool) -> Layout {
    Layout {
        topic: Text::Column("topic".into()),
        tenant: Some("tenant_id".into()),
        headers: Some("headers".into()),
        fields: BTreeMap::from([("event-type".to_owned(), "kind".into())]),
        status: Some("status".into()),
        words: Some(Words {
            pending: "new".into(),
            failed: Some("failed".into()),
            processing: "busy".into(),
            delivered: "sent".into(),
            dead: "dead".into(),
        }),
        dead_after_failed: two_steps,
        claim: ClaimBy::Lease,
        locked_until: Some("locked_until".into()),
        attempts: Some("attempts".into()),
        next_attempt_at: Some("due_at".into()),
        last_error: Some("last_error".into()),
        created_at: Some("created_at".into()),
        ..Layout::bare("loose", Names::existing(None, "loose_", "loose").expect("good names"), "id", "payload")
    }
}

/// Makes the table, in the words of a database.
fn table(id: &str, topic: &str, uuid: &str, json: &str, time: &str) -> String {
    format!(
        "create table loose (id {id} primary key, topic {topic} null, tenant_id {uuid} null, headers {json} null, kind {topic} null, payload {json} null,
           status varchar(16) not null default 'new', attempts int null, due_at {time} null, locked_until {time} null, last_error text null,
           created_at {time} null)"
    )
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// A row with these columns beside its id.
fn row(number: u128, columns: &str, values: &str) -> String {
    format!("insert into loose (id, payload, {columns}) values ('{}', '7', {values})", id(number))
}

/// What every database can have written: two good rows, one that says nothing at all, and one whose headers are a list.
fn usual() -> Vec<String> {
    vec![
        row(1, "topic, headers, kind", r#"'placed', '{"color": "red"}', 'order'"#),
        row(2, "topic, headers, kind, tenant_id, created_at", "null, null, null, null, null"),
        row(3, "topic, headers", "'placed', '[1]'"),
        row(4, "topic, kind", "'placed', 'order'"),
    ]
}

async fn claim(store: &impl Operator) -> Vec<ClaimedMessage> {
    let request = ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::new_v4(),
        limit: 100,
        max_bytes: u64::MAX,
        lease: Duration::from_secs(30),
        max_attempts: 10,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: LARGEST_CLAIM,
        thorough: false,
    };
    let mut messages = store.claim(&request).await.expect("the store claims").messages;
    messages.sort_by_key(|message| message.id);
    messages
}

/// The neighbours are delivered; what cannot be read is dead with the reason, shown and counted, and can be mended or discarded.
async fn is_told_apart(store: &impl Operator, bad: &[(u128, &str)], mend: impl AsyncFn(&'static str)) {
    let claimed = claim(store).await;
    assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>(), [id(1), id(2), id(4)]);
    let headers = |at: usize, name: &str| claimed[at].headers.get(name).map(String::as_str);
    assert_eq!((headers(0, "color"), headers(0, "event-type")), (Some("red"), Some("order")));
    assert_eq!((claimed[1].topic.as_str(), claimed[1].headers.len(), claimed[1].tenant_id), ("", 0, None));
    assert!(claimed[1].age < Duration::from_secs(60), "{:?}", claimed[1].age);
    assert_eq!(headers(2, "event-type"), Some("order"));
    let leases: Vec<_> = claimed.iter().map(|message| message.lease).collect();
    let acked = store.ack(&leases, Delivered::Keep).await.expect("acked");
    assert_eq!(acked, [Settled::Done, Settled::Done, Settled::Done]);
    assert!(claim(store).await.is_empty(), "nothing is met again");
    let swept = store.sweep(&Scope::all(), 10, 100).await.expect("swept");
    assert!(swept.buried.is_empty(), "{swept:?}");

    let stats = store.stats(&Scope::all()).await.expect("counted");
    assert_eq!((stats.dead, stats.pending + stats.processing), (bad.len() as u64, 0), "{stats:?}");
    let overview = store.overview(&Scope::all(), true).await.expect("counted");
    assert_eq!(overview.iter().map(|tally| tally.messages).sum::<u64>(), bad.len() as u64 + 3);
    let all = Filter::default();
    assert_eq!(store.count_dead(&all).await.expect("counted"), bad.len() as u64);
    let dead = store.dead(&all, None, 100).await.expect("listed");
    for (number, why) in bad {
        let told =
            |record: &&postrider::operate::Record| record.last_error.as_ref().is_some_and(|error| error.contains(why));
        let record = dead.iter().filter(|record| record.id == id(*number)).find(told);
        assert!(record.is_some(), "{why}: {dead:#?}");
    }
    let last = dead.last().expect("there are some").position();
    assert_eq!(store.dead(&all, Some(last), 100).await.expect("listed"), [], "a list comes to its end");

    mend("update loose set headers = '{}' where headers = '[1]'").await;
    let filter = Filter { ids: Some(vec![id(3)]), ..Filter::default() };
    let replay = Change { who: "night shift".into(), filter, limit: 10 };
    assert_eq!(store.replay(&replay).await.expect("replayed"), [id(3)]);
    let mended = claim(store).await;
    assert_eq!(mended.iter().map(|message| message.id).collect::<Vec<_>>(), [id(3)]);
    store.ack(&[mended[0].lease], Delivered::Keep).await.expect("acked");

    // A replay of what was not mended ends where it began, and discarding it works.
    let filter = Filter { error: Some("cannot be read".into()), ..Filter::default() };
    let change = Change { who: "night shift".into(), filter: filter.clone(), limit: 100 };
    let left = bad.len() - 1;
    assert_eq!(store.replay(&change).await.expect("replayed").len(), left);
    assert!(claim(store).await.is_empty());
    assert_eq!(store.count_dead(&filter).await.expect("counted"), left as u64);
    assert_eq!(store.discard(&change).await.expect("discarded").len(), left);
    assert_eq!(store.count_dead(&all).await.expect("counted"), 0);
}

const NO_OBJECT: &str = "its headers are no JSON object";

async fn run<'c, E: Executor<'c>>(executor: E, sql: &str) {
    executor
        .execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned())))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_given_up_and_its_neighbours_are_delivered_on_postgresql() {
    for two_steps in [false, true] {
        let (_, pool) = tables::empty().await;
        run(&pool, &table("uuid", "text", "uuid", "jsonb", "timestamptz")).await;
        let store = PostgresStore::with_layout(pool.clone(), loose(two_steps)).expect("the layout makes sense");
        store.migrate().await.expect("the audit table is made");
        for sql in usual() {
            run(&pool, &sql).await;
        }
        is_told_apart(&store, &[(3, NO_OBJECT)], async |sql| run(&pool, sql).await).await;
    }
}

/// What a database without a type for UUIDs, or without any types, can have in a row.
fn odd(bytes: &str) -> Vec<String> {
    vec![
        row(5, "topic, headers", "'placed', 'no json'"),
        row(6, "topic, tenant_id", "'placed', 'nobody'"),
        row(7, "topic", bytes),
        "insert into loose (id, payload, topic) values ('not a UUID', '7', 'placed')".to_owned(),
        "insert into loose (id, payload, topic) values ('00000000-0000-0000-0000-00000000000x', '7', 'placed')"
            .to_owned(),
    ]
}

const ODD: [(u128, &str); 6] = [
    (3, NO_OBJECT),
    (5, NO_OBJECT),
    (6, "its tenant \"nobody\" is no UUID"),
    (7, "its topic is no text"),
    (0, "its id \"not a UUID\" is no UUID"),
    (0, "its id \"00000000-0000-0000-0000-00000000000x\" is no UUID"),
];

#[tokio::test]
async fn a_row_that_cannot_be_read_is_given_up_and_its_neighbours_are_delivered_on_mysql() {
    for two_steps in [false, true] {
        let server = MariaDb::shared().await.expect("the server starts");
        let database = server.create_database().await.expect("the database is created");
        let pool = MySqlPoolOptions::new().max_connections(5).connect_with(database.access().clone());
        let pool = pool.await.expect("it answers");
        run(&pool, &table("varchar(60)", "varbinary(80)", "varchar(60)", "longtext", "datetime(6)")).await;
        let store = MySqlStore::with_layout(pool.clone(), loose(two_steps)).expect("the layout makes sense");
        store.migrate().await.expect("the migrations run");
        for sql in usual().into_iter().chain(odd("x'ff'")) {
            run(&pool, &sql).await;
        }
        is_told_apart(&store, &ODD, async |sql| run(&pool, sql).await).await;
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_given_up_and_its_neighbours_are_delivered_on_sqlite() {
    for two_steps in [false, true] {
        let directory = TempDir::new().expect("a directory");
        let options = SqliteConnectOptions::new().filename(directory.path().join("outbox.db"));
        let store = SqliteStore::open_with_layout(options, loose(two_steps)).await.expect("the file opens");
        let pool = store.pool().clone();
        run(&pool, &table("text", "text", "text", "text", "integer")).await;
        store.migrate().await.expect("the migrations run");
        // A key may be null there, and a number a text.
        let own = [
            "insert into loose (id, payload, topic) values (null, '7', 'placed')",
            "update loose set created_at = '2026-01-01 10:00:00' where topic is null",
        ];
        for sql in usual().into_iter().chain(odd("x'ff'")).chain(own.map(str::to_owned)) {
            run(&pool, &sql).await;
        }
        let bad: Vec<_> = ODD.into_iter().chain([(0, "its id null is no UUID")]).collect();
        is_told_apart(&store, &bad, async |sql| run(&pool, sql).await).await;
    }
}

/// Rows that a person or a program wrote otherwise than we would: they are messages all the same, and hold up nobody.
async fn is_delivered_once(store: &impl Operator, ids: &[Uuid]) {
    let claimed = claim(store).await;
    assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>(), ids);
    let leases: Vec<_> = claimed.iter().map(|message| message.lease).collect();
    let acked = store.ack(&leases, Delivered::Keep).await.expect("acked");
    assert_eq!(acked, vec![Settled::Done; ids.len()]);
    assert!(claim(store).await.is_empty(), "nothing is met again");
    let stats = store.stats(&Scope::all()).await.expect("counted");
    assert_eq!((stats.pending, stats.processing, stats.dead), (0, 0, 0), "{stats:?}");
}

#[tokio::test]
async fn infinite_times_missing_places_and_counts_below_zero_hold_up_nobody_on_postgresql() {
    for with_place in [false, true] {
        let (_, pool) = tables::empty().await;
        run(&pool, &table("uuid", "text", "uuid", "jsonb", "timestamptz")).await;
        run(&pool, "alter table loose add place int null").await;
        let layout = Layout { seq: with_place.then(|| "place".into()), ..loose(false) };
        let store = PostgresStore::with_layout(pool.clone(), layout).expect("the layout makes sense");
        for sql in [
            row(1, "due_at, place", "'-infinity', 1"),
            row(2, "created_at, place", "'-infinity', null"),
            row(3, "created_at, due_at", "'infinity', now()"),
            row(4, "attempts", "-5"),
        ] {
            run(&pool, &sql).await;
        }
        is_delivered_once(&store, &[1, 2, 3, 4].map(id)).await;
    }
    // Our own table goes another way.
    let (_, pool) = tables::empty().await;
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await.expect("migrated");
    run(
        &pool,
        &format!(
            "insert into outbox_messages (id, namespace, topic, payload, attempts, next_attempt_at) values
               ('{}', 'shop', 'placed', '7', -5, now()), ('{}', 'shop', 'placed', '7', 0, '-infinity')",
            id(1),
            id(2)
        ),
    )
    .await;
    is_delivered_once(&store, &[1, 2].map(id)).await;
}

/// A claim by row lock gives it up with its own marks.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_given_up_by_row_lock_too() {
    let (_, pool) = tables::empty().await;
    run(
        &pool,
        "create table loose (id uuid primary key, topic text, headers jsonb, payload jsonb, attempts int not null default 0,
           last_error text, sent_at timestamptz, created_at timestamptz not null default now())",
    )
    .await;
    let layout = Layout {
        status: None,
        words: None,
        tenant: None,
        fields: BTreeMap::new(),
        claim: ClaimBy::RowLock,
        locked_until: None,
        next_attempt_at: None,
        delivered_at: Some("sent_at".into()),
        give_up_after: Some(10),
        ..loose(false)
    };
    let store = PostgresStore::with_layout(pool.clone(), layout).expect("the layout makes sense");
    for sql in [row(1, "topic", "'placed'"), row(2, "headers", "'[1]'"), row(3, "topic", "'placed'")] {
        run(&pool, &sql).await;
    }
    let claimed = claim(&store).await;
    assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>(), [id(1), id(3)]);
    let leases: Vec<_> = claimed.iter().map(|message| message.lease).collect();
    assert_eq!(store.ack(&leases, Delivered::Keep).await.expect("acked"), [Settled::Done; 2]);
    let error: (i32, String) = sqlx::query_as("select attempts, last_error from loose where sent_at is null")
        .fetch_one(&pool)
        .await
        .expect("one");
    assert!(error.0 == 10 && error.1.contains(NO_OBJECT), "{error:?}");
    assert!(claim(&store).await.is_empty());
}
