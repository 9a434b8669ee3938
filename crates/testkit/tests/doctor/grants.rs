//! Each role does its work with exactly the printed privileges, and fails at every statement that is not its work.

use std::sync::Arc;
use std::time::Duration;

use postrider::operate::{Change, Filter, Severity};
use postrider::{AnyStore, Connect, Dispatcher, Message, PublishError, Scope, callback};
use sqlx::AssertSqlSafe;
use testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::scene::{OnMySql, OnPostgres, open, statements};

/// Who runs a statement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Producer,
    Relay,
    Operator,
}
use Role::{Operator, Producer, Relay};

/// Statements with who may run them.
const MATRIX: [(&str, &[Role]); 32] = [
    ("insert into outbox_messages (namespace, topic, payload) values ('shop', 'order', '1')", &[Producer]),
    ("insert into outbox_messages (namespace, topic, payload, status) values ('shop', 'order', '1', 'delivered')", &[]),
    ("insert into outbox_messages (namespace, topic, payload, attempts) values ('shop', 'order', '1', 9)", &[]),
    ("select id from outbox_messages where dedupe_key = 'none'", &[Producer, Relay, Operator]),
    ("select payload from outbox_messages", &[Relay, Operator]),
    ("select payload_bytes, headers from outbox_messages", &[Relay, Operator]),
    ("select * from outbox_messages", &[Relay, Operator]),
    ("update outbox_messages set status = 'pending'", &[Relay, Operator]),
    ("update outbox_messages set attempts = 0, last_error = null", &[Relay, Operator]),
    ("delete from outbox_messages where topic = 'none'", &[Relay, Operator]),
    ("truncate table outbox_messages", &[]),
    ("drop table outbox_messages", &[]),
    ("alter table outbox_messages add column more int", &[]),
    ("create index more_idx on outbox_messages (topic)", &[]),
    ("select version from postrider_migrations", &[Relay, Operator]),
    ("insert into postrider_migrations (version, name) values (77, 'x')", &[]),
    ("delete from postrider_migrations", &[]),
    ("select count(*) from postrider_audit", &[Operator]),
    ("update postrider_audit set who = 'nobody'", &[]),
    ("delete from postrider_audit", &[]),
    ("select value from postrider_settings", &[Producer, Relay, Operator]),
    ("insert into postrider_settings values ('0190e3c5-0000-7000-8000-000000000000', 'a', 'b')", &[Producer]),
    ("update postrider_settings set value = value", &[Producer]),
    ("delete from postrider_settings", &[]),
    ("select payload from postrider_changelog", &[Producer, Relay, Operator]),
    ("insert into postrider_changelog (versionstamp, uow_id, payload) values ('123456789012', 'u', '1')", &[Producer]),
    ("update postrider_changelog set payload = '2'", &[]),
    ("delete from postrider_changelog", &[]),
    ("select name from postrider_cursors", &[Relay, Operator]),
    ("insert into postrider_cursors (name, versionstamp) values ('c', '123456789012')", &[Relay]),
    ("update postrider_cursors set last_error = null", &[Relay, Operator]),
    ("delete from postrider_cursors", &[Relay, Operator]),
];

/// Runs the statements of the matrix as every role, each rolled back; `denied` says what a refusal is.
macro_rules! check_matrix {
    ($scene:expr, $pool:ty, $more:expr, $denied:expr) => {{
        let scene = $scene;
        for role in [Producer, Relay, Operator] {
            let name = match role {
                Producer => scene.roles.producer(),
                Relay => scene.roles.relay(),
                Operator => scene.roles.operator(),
            };
            let pool = <$pool>::connect(&scene.url(name).replace("mariadb:", "mysql:")).await.expect("it logs in");
            for (sql, allowed) in MATRIX.iter().chain($more) {
                let mut transaction = pool.begin().await.expect("a transaction begins");
                let answer = sqlx::raw_sql(AssertSqlSafe((*sql).to_owned())).execute(&mut *transaction).await;
                transaction.rollback().await.expect("it rolls back");
                match (answer, allowed.contains(&role)) {
                    (Ok(_), true) => {}
                    (Err(error), false) => assert!($denied(&error), "{role:?} {sql}: {error}"),
                    (answer, expected) => panic!("{role:?} may {expected}: {sql}: {answer:?}"),
                }
            }
        }
    }};
}

const ON_POSTGRES: [(&str, &[Role]); 10] = [
    ("update outbox_messages set headers = '{}'", &[Operator]),
    ("update outbox_messages set payload = '2'", &[]),
    ("update outbox_messages set topic = 'other'", &[]),
    ("update outbox_messages set tenant_id = null", &[]),
    ("select * from postrider_enqueue('shop', 'order', '1', dedupe_key => 'two')", &[Producer]),
    ("alter table outbox_messages disable trigger all", &[]),
    ("alter function postrider_uuid_v7() strict", &[]),
    ("select * from outbox_messages for update skip locked", &[Relay, Operator]),
    ("create policy anything on outbox_messages using (true)", &[]),
    ("alter table outbox_messages owner to current_user", &[]),
];

/// With MariaDB's price for dedupe keys, see the text of the grants.
const ON_MARIADB: [(&str, &[Role]); 10] = [
    ("update outbox_messages set headers = '{}'", &[Producer, Operator]),
    ("update outbox_messages set payload = '2'", &[Producer]),
    ("update outbox_messages set topic = 'other'", &[Producer]),
    ("update outbox_messages set tenant_id = null", &[Producer]),
    ("call postrider_enqueue('shop', 'order', '1', '{\"dedupe_key\": \"two\"}')", &[Producer]),
    ("select slot from postrider_turns where slot = 1 for update", &[Producer, Operator]),
    ("delete from postrider_turns", &[]),
    ("drop procedure postrider_enqueue", &[]),
    ("select seq from outbox_messages where topic = 'none' for update skip locked", &[Producer, Relay, Operator]),
    ("rename table outbox_messages to other", &[]),
];

#[tokio::test]
async fn s23_on_postgresql_each_role_fails_at_every_statement_it_should_not_run() {
    let scene = OnPostgres::new().await;
    scene.run("insert into outbox_messages (namespace, topic, payload) values ('shop', 'order', '0')").await;
    // 42501 is "insufficient privilege".
    let denied =
        |error: &sqlx::Error| error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("42501"));
    check_matrix!(&scene, sqlx::PgPool, &ON_POSTGRES, denied);
}

#[tokio::test]
async fn s23_on_mariadb_each_role_fails_at_every_statement_it_should_not_run() {
    let scene = OnMySql::new().await;
    scene.run("insert into outbox_messages (namespace, topic, payload) values ('shop', 'order', '0')").await;
    let denied = |error: &sqlx::Error| error.to_string().contains("denied");
    check_matrix!(&scene, sqlx::MySqlPool, &ON_MARIADB, denied);
}

#[tokio::test]
async fn s23_on_mariadb_a_producer_without_dedupe_keys_needs_no_update() {
    let scene = OnMySql::new().await;
    let text = open(&scene.database.url()).await.grants(&scene.roles);
    let mut updates = statements(&text).into_iter().filter(|sql| sql.starts_with("grant update"));
    let revoke = updates.next().expect("one of its own").replace("grant", "revoke").replace(" to ", " from ");
    assert!(revoke.ends_with(&format!("from `{}`", scene.roles.producer())) && updates.next().is_none(), "{text}");
    scene.run(&revoke).await;
    let store = open(&scene.url(scene.roles.producer())).await;
    store.enqueue(vec![Message::json("shop", "order", &1)]).await.expect("a producer may enqueue");
    let keyed = Message::json("shop", "order", &1).dedupe_key("one");
    store.enqueue(vec![keyed]).await.expect_err("a key needs more");
    let denied = |error: &sqlx::Error| error.to_string().contains("denied");
    let nobody: [(&str, &[Role]); 4] = [
        ("update outbox_messages set headers = '{}'", &[Operator]),
        ("update outbox_messages set payload = '2'", &[]),
        ("update outbox_messages set topic = 'other'", &[]),
        ("update outbox_messages set seq = seq + 1", &[]),
    ];
    check_matrix!(&scene, sqlx::MySqlPool, &nobody, denied);
}

/// A producer enqueues, a relay delivers, an operator looks and replays, each as its role.
async fn work(producer: &AnyStore, relay: &AnyStore, operator: &AnyStore) {
    relay.check_schema().await.expect("a relay may start");
    operator.check_schema().await.expect("an operator may look");
    let messages = (0..20).map(|n| Message::json("shop", "order", &n).dedupe_key(format!("order/{n}"))).collect();
    let enqueued = producer.enqueue(messages).await.expect("a producer may enqueue");
    assert!(enqueued.iter().all(|message| message.is_new()));
    let again = Message::json("shop", "order", &0).dedupe_key("order/0");
    let plain = Message::json("shop", "bad", &0);
    let enqueued = producer.enqueue(vec![again, plain]).await.expect("a producer may look for its keys");
    assert_eq!(enqueued.iter().map(|message| message.is_new()).collect::<Vec<_>>(), [false, true]);
    let sink = callback(|message| async move {
        match message.topic.as_str() {
            "bad" => Err(PublishError::reject("no such thing")),
            _ => Ok::<(), PublishError>(()),
        }
    });
    let (stop, dispatcher) =
        (CancellationToken::new(), Dispatcher::builder_shared(relay.store(), Arc::new(sink)).build());
    let running = tokio::spawn(dispatcher.expect("good settings").run(stop.clone()));
    let settled = || async {
        let stats = operator.store().stats(&Scope::all()).await.expect("an operator may count");
        stats.pending + stats.processing == 0 && stats.dead == 1
    };
    eventually(Duration::from_secs(120), settled).await;
    stop.cancel();
    assert_eq!(running.await.expect("the dispatcher ends").abandoned, 0);
    let change = Change { who: "tests".into(), filter: Filter::default(), limit: 10 };
    assert_eq!(operator.operator().replay(&change).await.expect("an operator may replay").len(), 1);
    let purge = postrider::store::Purge {
        scope: Scope::all(),
        finished: postrider::store::Finished::Delivered,
        older_than: Duration::ZERO,
        limit: 100,
    };
    assert_eq!(operator.store().purge(&purge).await.expect("an operator may purge"), 20);
    let findings = operator.examine().await.expect("an operator may ask the doctor");
    assert!(findings.iter().all(|finding| finding.severity == Severity::Fine), "{findings:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s23_on_postgresql_the_printed_privileges_are_enough_for_each_role() {
    let scene = OnPostgres::new().await;
    let [producer, relay, operator] =
        [scene.roles.producer(), scene.roles.relay(), scene.roles.operator()].map(|role| scene.url(role));
    work(&open(&producer).await, &open(&relay).await, &open(&operator).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s23_on_mariadb_the_printed_privileges_are_enough_for_each_role() {
    let scene = OnMySql::new().await;
    let [producer, relay, operator] =
        [scene.roles.producer(), scene.roles.relay(), scene.roles.operator()].map(|role| scene.url(role));
    work(&open(&producer).await, &open(&relay).await, &open(&operator).await).await;
}

#[tokio::test]
async fn where_there_are_no_roles_the_files_permissions_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Connect { create: true, ..Connect::default() };
    let url = format!("sqlite:{}/shop.db", directory.path().display());
    let store = AnyStore::connect(&url, &options).await.expect("the file is made");
    let roles = postrider::Roles::new("app", "relay", "ops").expect("good names");
    let text = store.grants(&roles);
    for word in ["no roles", "chmod 660", "-wal", "(app)", "(relay)", "(ops)"] {
        assert!(text.contains(word), "{text}");
    }
    assert!(text.lines().all(|line| line.starts_with("--")), "it can be run as SQL");
}
