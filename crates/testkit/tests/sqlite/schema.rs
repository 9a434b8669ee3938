//! Migrations, and what the table accepts from any language.

use postrider::operate::{Change, Filter};
use postrider::sqlite::migrate;
use postrider::{Names, Operator, SqliteStore};
use sqlx::{AssertSqlSafe, SqlitePool};
use tempfile::TempDir;
use uuid::Uuid;

use super::scene::{OnFile, claim, message, put};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

async fn run(pool: &SqlitePool, sql: &str) -> Result<(), String> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await;
    done.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_second_run_does_nothing_and_two_at_once_are_fine() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("shop.db");
    let stores = [SqliteStore::open(&file).await.expect("it opens"), SqliteStore::open(&file).await.expect("it opens")];
    let (one, other) = tokio::join!(stores[0].migrate(), stores[1].migrate());
    let mut ran = [one.expect("it runs"), other.expect("it runs")].concat();
    ran.sort_unstable();
    assert_eq!(ran, [1, 3, 4, migrate::LATEST]);
    assert_eq!(stores[0].migrate().await.expect("it runs"), [] as [i32; 0]);
}

#[tokio::test]
async fn the_script_makes_the_same_schema_and_notes_its_versions() {
    let directory = TempDir::new().expect("a directory");
    let by_script = SqliteStore::open(directory.path().join("script.db")).await.expect("it opens");
    run(by_script.pool(), &migrate::script(&postrider::Layout::default())).await.expect("the script runs");
    assert_eq!(by_script.migrate().await.expect("it runs"), [] as [i32; 0]);
    let by_hand = OnFile::new().await;
    let schema = "select group_concat(sql, ';') from (select sql from sqlite_master order by name)";
    let read = |pool: SqlitePool| async move {
        sqlx::query_scalar::<_, String>(schema).fetch_one(&pool).await.expect("the schema can be read")
    };
    assert_eq!(read(by_script.pool().clone()).await, read(by_hand.store.pool().clone()).await);
}

/// There was no version 2 on SQLite.
#[tokio::test]
async fn a_database_at_version_1_migrates_and_keeps_its_rows() {
    let directory = TempDir::new().expect("a directory");
    let store = SqliteStore::open(directory.path().join("shop.db")).await.expect("it opens");
    let script = migrate::script(&postrider::Layout::default());
    let (older, _) = script.split_once("-- 0003 audit").expect("the script has the third version");
    run(store.pool(), older).await.expect("the script runs");
    let rows = "insert into outbox_messages (namespace, topic, payload, status, last_error)
        values ('shop', 'a', '1', 'dead', 'no'), ('shop', 'b', '2', 'delivered', null), ('shop', 'c', '3', 'pending', null)";
    run(store.pool(), rows).await.expect("rows");
    let all = "select group_concat(id || topic || payload || headers || status || updated_at) from outbox_messages";
    let read = || async { sqlx::query_scalar::<_, String>(all).fetch_one(store.pool()).await.expect("rows") };
    let before = read().await;
    assert_eq!(store.migrate().await.expect("it runs"), [3, 4, 5]);
    assert_eq!(read().await, before);
    let replay = Change { who: "ann".into(), filter: Filter::default(), limit: 10 };
    assert_eq!(store.replay(&replay).await.expect("replayed").len(), 1);
    assert_eq!(store.audit(10).await.expect("read").len(), 1);
}

#[tokio::test]
async fn a_database_at_version_4_gets_the_changelog_and_keeps_its_rows() {
    let directory = TempDir::new().expect("a directory");
    let store = SqliteStore::open(directory.path().join("shop.db")).await.expect("it opens");
    let script = migrate::script(&postrider::Layout::default());
    let (older, _) = script.split_once("-- 0005 changelog").expect("the script has the fifth version");
    run(store.pool(), older).await.expect("the script runs");
    let rows = "insert into outbox_messages (namespace, topic, key, payload, status, last_error)
        values ('shop', 'a', 'k', '1', 'dead', 'no'), ('shop', 'b', 'k', '2', 'delivered', null), ('shop', 'c', 'k', '3', 'pending', null)";
    run(store.pool(), rows).await.expect("rows");
    let all = "select group_concat(id || topic || payload || headers || status || updated_at) from outbox_messages";
    let read = || async { sqlx::query_scalar::<_, String>(all).fetch_one(store.pool()).await.expect("rows") };
    let before = read().await;
    assert_eq!(store.migrate().await.expect("it runs"), [5]);
    assert_eq!(read().await, before);
    let settings = sqlx::query_as::<_, (String, String, String)>("select id, key, value from postrider_settings");
    let settings = settings.fetch_all(store.pool()).await.expect("settings");
    let [(row, key, id)] = &settings[..] else { panic!("{settings:?}") };
    assert!(key == "store.id" && row != id, "{settings:?}");
    for uuid in [row, id] {
        assert_eq!(uuid.parse::<Uuid>().expect("a UUID").to_string(), *uuid);
    }
    let empty = "select (select count(*) from postrider_changelog) + (select count(*) from postrider_cursors)";
    assert_eq!(sqlx::query_scalar::<_, i64>(empty).fetch_one(store.pool()).await.expect("a number"), 0);
}

#[tokio::test]
async fn an_entry_is_kept_as_it_was_written_and_has_its_own_stamp_and_unit_of_work() {
    let scene = OnFile::new().await;
    let pool = scene.store.pool();
    let payload = r#"{"b":1.0,  "a":"\u0000"}"#;
    let insert = async |stamp: &[u8], unit: &str, payload: &str| {
        let sql = "insert into postrider_changelog (versionstamp, uow_id, payload) values (?1, ?2, ?3)";
        sqlx::query(sql).bind(stamp).bind(unit).bind(payload).execute(pool).await
    };
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], "two", payload).await.expect("written");
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], "one", payload).await.expect("written");
    insert(&[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0], "one ", payload).await.expect("a space makes a difference");
    for (stamp, unit, payload) in [
        (&[9; 12][..], "one", payload),
        (&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], "new", payload),
        (&[9; 11], "short", payload),
        (&[9; 12], "no JSON", "{"),
    ] {
        assert!(insert(stamp, unit, payload).await.is_err(), "{unit}");
    }
    for bad in [
        "insert into postrider_changelog (versionstamp, uow_id, payload) values ('123456789012', 'u', '1')",
        "insert into postrider_changelog (versionstamp, uow_id, payload) values (zeroblob(12), x'00', '1')",
        "insert into postrider_changelog (id, versionstamp, uow_id, payload) values ('1', zeroblob(12), 'u', '1')",
        "insert into postrider_cursors (name, versionstamp) values ('c', zeroblob(11))",
        "insert into postrider_cursors (name, versionstamp, locked_until) values ('c', zeroblob(12), 'soon')",
    ] {
        assert!(run(pool, bad).await.expect_err(bad).contains("CHECK"), "{bad}");
    }
    let sql = "select uow_id, payload from postrider_changelog order by versionstamp";
    let read: Vec<(String, String)> = sqlx::query_as(sql).fetch_all(pool).await.expect("entries");
    assert_eq!(read.iter().map(|(unit, _)| unit.as_str()).collect::<Vec<_>>(), ["one", "two", "one "]);
    assert!(read.iter().all(|(_, read)| read == payload), "{read:?}");
}

#[tokio::test]
async fn a_schema_of_a_newer_postrider_is_refused() {
    let scene = OnFile::new().await;
    run(scene.store.pool(), "insert into postrider_migrations (version, name) values (999, 'later')")
        .await
        .expect("ok");
    let error = scene.store.migrate().await.expect_err("it is newer").to_string();
    assert!(error.contains("999"), "{error}");
}

#[tokio::test]
async fn two_outboxes_in_one_file_do_not_mix() {
    let scene = OnFile::new().await;
    let names = Names::unqualified("other_", "other_messages").expect("good names");
    let other = SqliteStore::new(scene.store.pool().clone(), names);
    other.migrate().await.expect("the migrations run");
    let (first, second) = (scene.put(message()).await, put(&other, message()).await);
    let claimed = |messages: Vec<postrider::ClaimedMessage>| messages.iter().map(|m| m.id).collect::<Vec<_>>();
    assert_eq!(claimed(claim(&scene.store, LEASE).await), [first]);
    assert_eq!(claimed(claim(&other, LEASE).await), [second]);
}

#[tokio::test]
async fn plain_inserts_get_good_defaults() {
    let scene = OnFile::new().await;
    for _ in 0..200 {
        run(scene.store.pool(), "insert into outbox_messages (namespace, topic, payload) values ('shop', 't', '{}')")
            .await
            .expect("a plain insert");
    }
    let claimed = [claim(&scene.store, LEASE).await, claim(&scene.store, LEASE).await].concat();
    assert_eq!(claimed.len(), 200);
    for message in claimed {
        assert_eq!((message.id.get_version_num(), message.id.get_variant()), (7, uuid::Variant::RFC4122));
        assert!(message.age < Duration::from_secs(60), "{:?}", message.age);
    }
    let odd: i64 = sqlx::query_scalar("select count(*) from outbox_messages where next_attempt_at <> created_at")
        .fetch_one(scene.store.pool())
        .await
        .expect("a number");
    assert_eq!(odd, 0);
}

#[tokio::test]
async fn what_a_relay_could_not_read_is_refused_at_the_insert() {
    let scene = OnFile::new().await;
    let upper = Uuid::new_v4().to_string().to_uppercase();
    for (columns, values) in [
        ("id", format!("'{upper}'")),
        ("id", "x'00'".into()),
        ("tenant_id", format!("'{upper}x'")),
        ("status", "'done'".into()),
        ("attempts", "'many'".into()),
        ("max_attempts", "'many'".into()),
        ("next_attempt_at", "'2030-01-01'".into()),
        ("created_at", "'2030-01-01'".into()),
        ("locked_until", "'2030-01-01'".into()),
        ("headers", "'[]'".into()),
        ("headers", "'nonsense'".into()),
        ("payload_bytes", "'text'".into()),
        ("dedupe_key", "x'00'".into()),
    ] {
        let sql = format!(
            "insert into outbox_messages (namespace, topic, payload, {columns}) values ('shop', 't', '{{}}', {values})"
        );
        let error = run(scene.store.pool(), &sql).await.expect_err(&sql);
        assert!(error.contains("CHECK constraint failed: outbox_messages_"), "{error}");
    }
    for payload in ["'nonsense'", "x'00'", "'{'"] {
        let sql = format!("insert into outbox_messages (namespace, topic, payload) values ('shop', 't', {payload})");
        assert!(run(scene.store.pool(), &sql).await.is_err(), "{sql}");
    }
}

#[tokio::test]
async fn every_json_that_a_producer_may_send_is_stored_exactly() {
    let scene = OnFile::new().await;
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    let huge = format!("[{}, -1e400, 1.000000000000000000000000000001]", "9".repeat(400));
    for text in [deep, huge, "  {\"a\" : 1 }".into(), "\"\\ud83d\\ude00 \\u00e9\"".into(), "null".into()] {
        let payload = serde_json::value::RawValue::from_string(text.trim().to_owned()).expect("it is JSON");
        let sent = postrider::Message::json("shop", "t", &payload);
        scene.put(sent).await;
        let claimed = claim(&scene.store, LEASE).await;
        assert_eq!(claimed[0].payload.as_bytes(), text.trim().as_bytes());
    }
}
