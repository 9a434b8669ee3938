//! R10: sessions that would change data silently are refused at the start, or cannot do any harm.

use std::time::{Duration, UNIX_EPOCH};

use postrider::{Message, MySqlStore, Names, Payload, Store, StoreErrorKind};
use testkit::MariaDb;
use uuid::Uuid;

use crate::scene::{OnMySql, empty, message, pool_in, request};

#[tokio::test]
async fn r10_a_session_that_is_not_strict_or_not_utf8mb4_is_refused_and_the_error_says_what_to_set() {
    for (session, setting, value) in [
        ("set session sql_mode = ''", "sql_mode", "STRICT_TRANS_TABLES"),
        ("set session sql_mode = 'NO_ENGINE_SUBSTITUTION,ANSI_QUOTES'", "sql_mode", "STRICT_TRANS_TABLES"),
        ("set names latin1", "character_set_client", "utf8mb4"),
        ("set names utf8mb3", "character_set_client", "utf8mb4"),
        ("set character_set_connection = latin1", "character_set_connection", "utf8mb4"),
        ("set character_set_results = latin1", "character_set_results", "utf8mb4"),
        ("set session autocommit = 0", "autocommit", "1"),
        ("set session completion_type = CHAIN", "completion_type", "NO_CHAIN"),
        (
            "set session sql_mode = 'STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL'",
            "sql_mode",
            "take EMPTY_STRING_IS_NULL out",
        ),
    ] {
        let good = OnMySql::new().await;
        let bad = MySqlStore::new(pool_in(&good.database, session).await, Names::default());
        good.put(vec![message()]).await;
        let refusals = [
            bad.migrate().await.expect_err(session),
            bad.check().await.expect_err(session),
            bad.claim(&request()).await.expect_err(session),
        ];
        for refused in refusals {
            assert_eq!(refused.kind(), StoreErrorKind::Refused, "{session}");
            let text = refused.to_string();
            assert!(text.contains(setting) && text.contains(value), "{session}: {text}");
        }
        assert_eq!(good.claim().await.len(), 1, "the row was left alone");
    }
}

#[tokio::test]
async fn r10_strict_modes_and_other_words_in_sql_mode_are_fine() {
    for session in [
        "set session sql_mode = 'STRICT_ALL_TABLES'",
        "set session sql_mode = 'ANSI,STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES'",
        "set session sql_mode = 'TRADITIONAL,ONLY_FULL_GROUP_BY'",
        "set session time_zone = '+05:30'",
        "set session tx_isolation = 'SERIALIZABLE'",
    ] {
        let database = empty().await;
        let pool = pool_in(&database, session).await;
        let store = MySqlStore::new(pool.clone(), Names::default());
        store.migrate().await.expect(session);
        let mut transaction = pool.begin().await.expect("begun");
        let sent = message().dedupe_key("k\\'\"").header("x", "it's \\ \"");
        store.outbox().enqueue(&mut transaction, sent).await.expect(session);
        transaction.commit().await.expect("committed");
        let claimed = store.claim(&request()).await.expect(session).messages;
        assert_eq!(claimed[0].dedupe_key.as_deref(), Some("k\\'\""), "{session}");
        assert_eq!(claimed[0].headers["x"], "it's \\ \"", "{session}");
        store.sweep(&request().scope, 1, 10).await.expect(session);
        store.stats(&request().scope).await.expect(session);
    }
}

#[tokio::test]
async fn r10_a_server_set_up_badly_is_refused() {
    let server = MariaDb::builder().setting("sql-mode", "").setting("default-time-zone", "+05:30");
    let server = server.setting("character-set-server", "latin1").start().await.expect("it starts");
    let pool = server.create_database().await.expect("created").pool().await.expect("it answers");
    let refused = MySqlStore::new(pool, Names::default()).migrate().await.expect_err("sql_mode is empty");
    assert!(refused.to_string().contains("sql_mode"), "{refused}");
}

#[tokio::test]
async fn r10_a_table_without_transactions_is_refused() {
    let scene = OnMySql::new().await;
    scene.execute("alter table outbox_messages engine = MyISAM").await;
    let refused = scene.store.check().await.expect_err("MyISAM has no transactions");
    assert!(refused.to_string().contains("engine = InnoDB"), "{refused}");
}

/// Not strict and not Unicode, or in another time zone: what a producer enqueues there arrives as it was.
#[tokio::test]
async fn r10_a_producer_in_any_session_writes_exactly_what_it_was_given() {
    let scene = OnMySql::new().await;
    for session in [
        "set session sql_mode = ''",
        "set names latin1",
        "set names latin1; set session sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'",
        "set names utf8mb3; set session sql_mode = ''",
        "set names gbk; set session sql_mode = ''",
        "set session time_zone = '+05:30', sql_mode = ''; set names latin2",
    ] {
        let pool = pool_in(&scene.database, session).await;
        let tenant = Uuid::new_v4();
        let key = format!("{tenant}/{}", "ключ 🗝 \\ ' ".repeat(18));
        let due = UNIX_EPOCH + Duration::from_micros(1_234_567_890_123_456);
        let json = serde_json::json!({"text": "naïve 🦀 Ж \\ \" ' \u{1}", "n": [1.5, -0.25]});
        let sent = Message::json("shop", "json", &json).tenant(tenant).key(key.clone()).dedupe_key(key.clone());
        let bytes: Vec<u8> = (0..=255).collect();
        let sent = vec![
            sent.header("x-text", "ünï 🦀 \"q\" \\ '").deliver_at(due).max_attempts(3),
            Message::bytes("shop", "raw", "a/b", bytes.clone()),
        ];
        scene.enqueue(&pool, sent).await.expect(session);
        let again = Message::json("shop", "json", &json).tenant(tenant).dedupe_key(key.clone());
        assert!(!scene.enqueue(&pool, vec![again]).await.expect(session)[0].is_new(), "{session}");
        let claimed = scene.claim().await;
        assert_eq!(claimed.len(), 2, "{session}");
        assert_eq!((claimed[0].key.as_ref(), claimed[0].dedupe_key.as_ref()), (Some(&key), Some(&key)), "{session}");
        assert_eq!(claimed[0].payload.to_value().expect("JSON"), json, "{session}");
        assert_eq!((claimed[0].tenant_id, claimed[0].max_attempts), (Some(tenant), Some(3)));
        assert_eq!(claimed[0].headers["x-text"], "ünï 🦀 \"q\" \\ '", "{session}");
        assert_eq!(claimed[1].payload, Payload::Bytes(bytes), "{session}");
        let due = "select timestampdiff(microsecond, '1970-01-01', next_attempt_at) from outbox_messages where topic = 'json' order by seq desc limit 1";
        assert_eq!(scene.number(due).await, 1_234_567_890_123_456, "{session}");
        let age = "select max(abs(timestampdiff(second, created_at, utc_timestamp(6)))) from outbox_messages";
        assert!(scene.number(age).await < 60, "{session}: times are UTC");
    }
}

#[tokio::test]
async fn r10_times_too_late_for_the_server_are_not_written_as_something_else() {
    let scene = OnMySql::new().await;
    let pool = pool_in(&scene.database, "set session sql_mode = ''").await;
    let year = Duration::from_secs(365 * 24 * 3_600);
    let last_second = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let sent = vec![message().deliver_after(year * 8_020), message().deliver_at(last_second), message()];
    scene.enqueue(&pool, sent).await.expect("valid");
    assert_eq!(scene.claim().await.len(), 1, "only the last one is due");
    assert_eq!(scene.number("select count(*) from outbox_messages where year(next_attempt_at) > 8000").await, 2);
}
