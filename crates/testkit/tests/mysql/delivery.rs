//! A plain insert gets its defaults and is delivered by a dispatcher, which polls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::operate::{Change, Filter};
use postrider::store::{ClaimOrder, ClaimRequest};
use postrider::{Dispatcher, Operator, PublishError, Store, callback};
use testkit::eventually;
use tokio_util::sync::CancellationToken;
use uuid::{Uuid, Version};

use crate::scene::{OnMySql, message, pool_in, purge, replay, request, run};

#[tokio::test]
async fn a_plain_insert_from_any_session_is_delivered() {
    let scene = OnMySql::new().await;
    let elsewhere = pool_in(&scene.database, "set session time_zone = '-11:00', sql_mode = 'ANSI'").await;
    let arrived: Arc<Mutex<Vec<(Uuid, String)>>> = Arc::default();
    let seen = arrived.clone();
    let sink = callback(move |message| {
        let text = String::from_utf8_lossy(message.payload.as_bytes()).into_owned();
        seen.lock().expect("not poisoned").push((message.id, text));
        async { Ok::<(), PublishError>(()) }
    });
    let stop = CancellationToken::new();
    let dispatcher = Dispatcher::builder(scene.store.clone(), sink).poll_interval(Duration::from_millis(100));
    let running = tokio::spawn(dispatcher.build().expect("the settings agree").run(stop.clone()));
    let insert = r#"insert into outbox_messages (namespace, topic, payload) values ('shop', 'order.placed', '{"n": 1.10}'), ('shop', 'order.placed', '2')"#;
    run(&elsewhere, insert).await.expect("a plain insert works");
    run(&scene.pool, insert).await.expect("a plain insert works");
    eventually(Duration::from_secs(120), || async { arrived.lock().expect("not poisoned").len() == 4 }).await;
    eventually(Duration::from_secs(120), || async {
        scene.number("select count(*) from outbox_messages where status = 'delivered'").await == 4
    })
    .await;
    stop.cancel();
    assert_eq!(running.await.expect("it ends").abandoned, 0);
    let arrived = arrived.lock().expect("not poisoned");
    assert_eq!(arrived[0].1, r#"{"n": 1.10}"#, "the text is as it was written");
    for (id, _) in arrived.iter() {
        assert_eq!(id.get_version(), Some(Version::SortRand));
        let (seconds, _) = id.get_timestamp().expect("it has a time").to_unix();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
        assert!(now.abs_diff(seconds) < 120, "{id}");
    }
}

#[tokio::test]
async fn an_insert_that_could_not_be_delivered_is_refused() {
    let scene = OnMySql::new().await;
    // Where the session lets days pass that are none, and fills in what is missing.
    let loose = pool_in(&scene.database, "set session sql_mode = 'ALLOW_INVALID_DATES'").await;
    for columns in [
        "(namespace, topic, payload, status) values ('a', 'b', '1', 'waiting')",
        "(namespace, topic, payload, headers) values ('a', 'b', '1', '[1]')",
        "(namespace, topic, payload, headers) values ('a', 'b', '1', 'nonsense')",
        "(namespace, topic, payload, id) values ('a', 'b', '1', 'seven')",
        "(namespace, topic, payload, id) values ('a', 'b', '1', '0190B5B0-0000-7000-8000-000000000000')",
        "(namespace, topic, payload, tenant_id) values ('a', 'b', '1', 'acme')",
        "(namespace, topic) values ('a', 'b')",
        "(namespace, topic, payload, next_attempt_at) values ('a', 'b', '1', '0000-00-00')",
        "(namespace, topic, payload, next_attempt_at) values ('a', 'b', '1', '2020-00-01')",
        "(namespace, topic, payload, next_attempt_at) values ('a', 'b', '1', '2020-01-00')",
        "(namespace, topic, payload, next_attempt_at) values ('a', 'b', '1', '0999-12-31')",
        "(namespace, topic, payload, created_at) values ('a', 'b', '1', '0000-00-00')",
        "(namespace, topic, payload, created_at) values ('a', 'b', '1', '2020-00-00')",
        "(namespace, topic, payload) values ('', 'b', '1')",
        "(namespace, topic, payload) values ('a', '', '1')",
    ] {
        for pool in [&scene.pool, &loose] {
            let refused = run(pool, format!("insert into outbox_messages {columns}")).await;
            assert!(refused.is_err() || columns == "(namespace, topic) values ('a', 'b')", "{columns}");
        }
    }
    scene.execute("delete from outbox_messages where payload = ''").await;
    assert_eq!(scene.number("select count(*) from outbox_messages").await, 0);
}

/// An operator's update leaves the lease as it was.
#[tokio::test]
async fn rows_finished_by_hand_are_counted_purged_and_replayed_too() {
    let scene = OnMySql::new().await;
    scene.put(vec![message(), message(), message()]).await;
    assert_eq!(scene.claim().await.len(), 3);
    scene
        .execute("update outbox_messages set status = 'delivered', updated_at = '2000-01-01' order by seq limit 1")
        .await;
    scene.execute("update outbox_messages set status = 'dead' where status = 'processing'").await;
    assert_eq!(scene.store.stats(&request().scope).await.expect("counted").dead, 2);
    assert_eq!(scene.store.purge(&purge()).await.expect("purged"), 1);
    for limit in [1, 9] {
        assert_eq!(scene.store.replay(&replay(request().scope, limit)).await.expect("replayed").len(), 1);
    }
    assert_eq!(scene.claim().await.len(), 2);
}

/// Bytes that are no text, spaces at the end, a namespace of strange characters: nothing stops the relay.
#[tokio::test]
async fn strange_plain_inserts_do_not_stop_the_relay() {
    let scene = OnMySql::new().await;
    scene.execute("insert into outbox_messages (namespace, topic, payload, `key`, headers) values ('a ', 'b', 'no json', x'ff00', '{\"n\": 1}')").await;
    scene
        .execute("insert into outbox_messages (namespace, topic, payload) values ('it''s, \"x\" \\\\', 'b', '')")
        .await;
    scene.execute("insert into outbox_messages (namespace, topic, payload) values ('a', ' ', '1')").await;
    assert_eq!(scene.claim().await.len(), 3);
}

/// Somebody dropped the table's checks: a time that is none counts as due.
#[tokio::test]
async fn times_that_are_none_do_not_stop_the_relay() {
    let scene = OnMySql::new().await;
    scene.put(vec![message()]).await;
    for constraint in ["next_attempt", "created"] {
        scene.execute(format!("alter table outbox_messages drop constraint outbox_messages_{constraint}_check")).await;
    }
    scene.execute("insert into outbox_messages (namespace, topic, payload, next_attempt_at, created_at) values ('a', 't', '1', '2020-00-00', '0000-00-00'), ('b', 't', '1', '0000-00-00', '2020-00-00')").await;
    scene.store.next_due(&request().scope).await.expect("looked").expect("due");
    scene.store.stats(&request().scope).await.expect("counted");
    scene.store.sweep(&request().scope, 5, 10).await.expect("swept");
    let fair = ClaimRequest { order: ClaimOrder::Fair { after: None }, limit: 2, ..request() };
    assert_eq!(scene.store.claim(&fair).await.expect("claimed").messages.len(), 2);
    scene.execute("update outbox_messages set status = 'pending', attempts = 0").await;
    assert_eq!(scene.claim().await.len(), 3);
    scene.execute("update outbox_messages set locked_until = '0000-00-00'").await;
    scene.store.next_due(&request().scope).await.expect("looked").expect("due");
    assert_eq!(scene.claim().await.len(), 3);
}

#[tokio::test]
async fn a_replay_of_a_topic_that_cannot_be_finds_nothing() {
    let scene = OnMySql::new().await;
    scene.put(vec![message()]).await;
    scene.execute("update outbox_messages set status = 'dead'").await;
    let filter = Filter { topic: Some("größe".into()), ..Filter::default() };
    let change = Change { filter, ..replay(request().scope, 9) };
    assert_eq!(scene.store.replay(&change).await.expect("nothing to do").len(), 0);
}

/// The rows of other tenants that come first do not hide those of the one that is swept.
#[tokio::test]
async fn a_sweep_of_a_tenant_finds_its_spent_rows_behind_those_of_others() {
    let scene = OnMySql::new().await;
    let tenant = Uuid::new_v4();
    let early = || message().deliver_at(std::time::UNIX_EPOCH);
    scene.put((0..postrider::store::LARGEST_CLAIM).map(|_| early()).collect()).await;
    scene.put(vec![message().tenant(tenant)]).await;
    scene.execute("update outbox_messages set attempts = 5 where tenant_id is not null").await;
    let scope = postrider::store::Scope { namespaces: None, tenant: Some(tenant) };
    assert_eq!(scene.store.sweep(&scope, 5, 10).await.expect("swept").buried.len(), 1);
}

/// With more namespaces than room, those that have been due for longest are looked at, and no more.
#[tokio::test]
async fn a_claim_stops_looking_when_it_has_enough() {
    let scene = OnMySql::with(|options| options.max_connections(1)).await;
    for at in 0..60 {
        let due = std::time::UNIX_EPOCH + Duration::from_secs(1_000 - at);
        scene.put(vec![postrider::Message::json(format!("n{at:02}"), "t", &1).deliver_at(due)]).await;
    }
    let locking = "select cast(variable_value as signed) from information_schema.session_status where variable_name = 'com_stmt_execute'";
    let before = scene.number(locking).await;
    let claimed = scene.store.claim(&ClaimRequest { limit: 2, ..request() }).await.expect("claimed").messages;
    let mut namespaces: Vec<_> = claimed.iter().map(|message| message.namespace.clone()).collect();
    namespaces.sort_unstable();
    assert_eq!(namespaces, ["n58", "n59"]);
    let executed = scene.number(locking).await - before;
    assert!(executed < 61 + 10, "{executed} statements: one look for each namespace, and a few for what was found");
}
