//! `postrider_enqueue`, for producers in other languages: the same checks as in Rust, and an exact row.

use postrider::Payload;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{MySqlConnection, MySqlPool, Row};
use uuid::Uuid;

use crate::scene::{OnMySql, pool_in};

async fn call(
    connection: &mut MySqlConnection,
    namespace: Option<&str>,
    topic: &str,
    payload: Option<&str>,
    options: Option<&str>,
) -> Result<(Uuid, bool), sqlx::Error> {
    let call =
        sqlx::query("call postrider_enqueue(?, ?, ?, ?)").bind(namespace).bind(topic).bind(payload).bind(options);
    let row = call.fetch_one(connection).await?;
    let (id, is_new): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok((Uuid::parse_str(&id).expect("a UUID"), is_new == 1))
}

async fn refusal(pool: &MySqlPool, namespace: Option<&str>, payload: Option<&str>, options: Option<&str>) -> String {
    let mut connection = pool.acquire().await.expect("a connection");
    let refused = call(&mut connection, namespace, "t", payload, options).await.expect_err("it is refused");
    let error = refused.into_database_error().expect("the server refused it");
    let error = error.downcast::<MySqlDatabaseError>();
    assert_eq!(error.code(), Some("22023"), "{error}");
    error.message().to_owned()
}

#[tokio::test]
async fn a_called_message_is_bound_to_the_transaction_and_arrives_exactly() {
    let scene = OnMySql::new().await;
    let tenant = Uuid::new_v4();
    let mut transaction = scene.pool.begin().await.expect("begun");
    call(&mut transaction, Some("shop"), "lost", Some("1"), None).await.expect("valid");
    transaction.rollback().await.expect("rolled back");
    let mut transaction = scene.pool.begin().await.expect("begun");
    let options = format!(
        r#"{{"key": "clé 🗝", "tenant_id": "{tenant}", "dedupe_key": "{tenant}/\u043a\"", "headers": {{"X-Trace": "ü \"q\" \\ '"}}, "deliver_at": "2020-02-29T12:00:00.5Z", "max_attempts": 4}}"#
    );
    let payload = r#"{"b":1.10,"a":"🦀","big":123456789012345678901234567890}"#;
    let (id, is_new) = call(&mut transaction, Some("shop"), "t", Some(payload), Some(&options)).await.expect("valid");
    assert!(is_new);
    let again = call(&mut transaction, Some("shop"), "t", Some("2"), Some(&options)).await.expect("no error");
    assert_eq!(again, (id, false));
    let bytes =
        call(&mut transaction, Some("shop"), "t", None, Some(r#"{"payload_base64": "AP8=", "content_type": "a/b"}"#));
    assert!(bytes.await.expect("valid").1);
    transaction.commit().await.expect("committed");
    let claimed = scene.claim().await;
    assert_eq!(claimed.len(), 2);
    let json = claimed.iter().find(|message| message.id == id).expect("it is there");
    assert_eq!(json.payload.as_bytes(), payload.as_bytes());
    assert_eq!((json.key.as_deref(), json.tenant_id, json.max_attempts), (Some("clé 🗝"), Some(tenant), Some(4)));
    assert_eq!(json.dedupe_key, Some(format!("{tenant}/к\"")));
    assert_eq!(json.headers["x-trace"], "ü \"q\" \\ '");
    let raw = claimed.iter().find(|message| message.id != id).expect("it is there");
    assert_eq!((&raw.payload, raw.content_type()), (&Payload::Bytes(vec![0, 255]), "a/b"));
    let due =
        "select timestampdiff(microsecond, '1970-01-01', next_attempt_at) from outbox_messages where max_attempts = 4";
    assert_eq!(scene.number(due).await, 1_582_977_600_500_000);
}

#[tokio::test]
async fn s0_38_what_rust_refuses_the_procedure_refuses_too() {
    let scene = OnMySql::new().await;
    // Also where the session itself would cut values off.
    let loose = pool_in(&scene.database, "set session sql_mode = ''").await;
    let long = "x".repeat(201);
    let (tenant, key) = (Uuid::new_v4(), "k".repeat(513));
    let wide = format!("{{{}}}", (0..65).map(|at| format!("\"h{at}\": \"v\"")).collect::<Vec<_>>().join(","));
    let huge = format!("\"{}\"", "x".repeat(1_048_575));
    for pool in [&scene.pool, &loose] {
        for (namespace, word) in [
            (None, "empty"),
            (Some(""), "empty"),
            (Some(&*long), "200"),
            (Some("sh op"), "letters"),
            (Some("shöp"), "letters"),
            (Some("shop\n"), "letters"),
            (Some("\u{17f}hop"), "letters"),
        ] {
            let text = refusal(pool, namespace, Some("1"), None).await;
            assert!(text.contains("namespace") && text.contains(word), "{namespace:?}: {text}");
        }
        for (options, word) in [
            ("[]".to_owned(), "object"),
            ("nonsense".to_owned(), "object"),
            (r#"{"kye": "x"}"#.to_owned(), "unknown"),
            (r#"{"key": 7}"#.to_owned(), "string"),
            (r#"{"key": ""}"#.to_owned(), "empty"),
            (r#"{"dedupe_key": ""}"#.to_owned(), "empty"),
            (format!(r#"{{"key": "{key}"}}"#), "512"),
            (format!(r#"{{"dedupe_key": "{key}"}}"#), "512"),
            (r#"{"key": "a\u0001b"}"#.to_owned(), "control"),
            (r#"{"key": "a\u009fb"}"#.to_owned(), "control"),
            (r#"{"dedupe_key": "a\u007fb"}"#.to_owned(), "control"),
            (r#"{"tenant_id": "acme"}"#.to_owned(), "UUID"),
            (format!(r#"{{"tenant_id": "{tenant}", "dedupe_key": "other/k"}}"#), "begin"),
            (r#"{"max_attempts": 0}"#.to_owned(), "1000"),
            (r#"{"max_attempts": 1001}"#.to_owned(), "1000"),
            (r#"{"max_attempts": "5"}"#.to_owned(), "1000"),
            (r#"{"max_attempts": 1.5}"#.to_owned(), "1000"),
            (r#"{"max_attempts": 99999999999999999999999}"#.to_owned(), "1000"),
            (r#"{"content_type": "a/b"}"#.to_owned(), "payload_base64"),
            (r#"{"deliver_at": "tomorrow"}"#.to_owned(), "deliver_at"),
            (r#"{"deliver_at": "2021-02-30T00:00:00Z"}"#.to_owned(), "deliver_at"),
            (r#"{"deliver_at": "2020-00-00T00:00:00Z"}"#.to_owned(), "deliver_at"),
            (r#"{"deliver_at": "2020-01-00T00:00:00Z"}"#.to_owned(), "deliver_at"),
            (r#"{"deliver_at": "0000-00-00T00:00:00Z"}"#.to_owned(), "deliver_at"),
            (r#"{"deliver_at": "1969-01-01T00:00:00Z"}"#.to_owned(), "deliver_at"),
            (r#"{"headers": ["x"]}"#.to_owned(), "object"),
            (r#"{"headers": {"b d": "x"}}"#.to_owned(), "token"),
            (r#"{"headers": {"": "x"}}"#.to_owned(), "token"),
            (r#"{"headers": {"Postrider-Id": "x"}}"#.to_owned(), "reserved"),
            (r#"{"headers": {"x": 7}}"#.to_owned(), "string"),
            (r#"{"headers": {"x": "a\u0001"}}"#.to_owned(), "control"),
            (format!(r#"{{"headers": {{"x": "{}"}}}}"#, "v".repeat(4_097)), "4096"),
            (format!(r#"{{"headers": {wide}}}"#), "64"),
            (r#"{"payload_base64": "%%%"}"#.to_owned(), "base64"),
            (r#"{"payload_base64": "AA==", "content_type": "a\u0001"}"#.to_owned(), "content type"),
        ] {
            let text = refusal(pool, Some("shop"), Some("1"), Some(&options)).await;
            assert!(text.starts_with("outbox message refused: ") && text.contains(word), "{options}: {text}");
        }
        for (payload, word) in
            [(None, "null"), (Some("{nonsense"), "JSON"), (Some(""), "JSON"), (Some(&*huge), "1048576")]
        {
            assert!(refusal(pool, Some("shop"), payload, None).await.contains(word));
        }
    }
    assert_eq!(scene.number("select count(*) from outbox_messages").await, 0);
}

#[tokio::test]
async fn options_that_are_null_are_as_if_they_were_left_out() {
    let scene = OnMySql::new().await;
    let mut connection = scene.pool.acquire().await.expect("a connection");
    let options = r#"{"key": null, "tenant_id": null, "dedupe_key": null, "headers": null, "deliver_at": null, "max_attempts": null, "payload_base64": null, "content_type": null}"#;
    call(&mut connection, Some("shop"), "t", Some("1"), Some(options)).await.expect("valid");
    call(&mut connection, Some("shop"), "t", Some("\"text \\n null\""), Some("{}")).await.expect("valid");
    drop(connection);
    let claimed = scene.claim().await;
    assert_eq!(claimed.len(), 2);
    assert!(claimed.iter().all(|message| message.key.is_none() && message.headers.is_empty()));
    assert!(claimed.iter().all(|message| message.max_attempts.is_none() && message.tenant_id.is_none()));
}

/// The word null as a key is a key.
#[tokio::test]
async fn a_key_that_reads_null_is_kept() {
    let scene = OnMySql::new().await;
    let mut connection = scene.pool.acquire().await.expect("a connection");
    call(&mut connection, Some("shop"), "t", Some("1"), Some(r#"{"key": "null", "dedupe_key": "null"}"#))
        .await
        .expect("valid");
    drop(connection);
    let claimed = scene.claim().await;
    assert_eq!((claimed[0].key.as_deref(), claimed[0].dedupe_key.as_deref()), (Some("null"), Some("null")));
}

#[tokio::test]
async fn a_key_of_a_space_is_none_that_is_empty_and_a_header_may_say_what_bytes_are() {
    let scene = OnMySql::new().await;
    let mut connection = scene.pool.acquire().await.expect("a connection");
    let options =
        r#"{"key": " ", "dedupe_key": " ", "payload_base64": "AP8=", "headers": {"Content-Type": "image/png"}}"#;
    call(&mut connection, Some("shop"), "t", None, Some(options)).await.expect("valid");
    let claimed = scene.claim().await;
    assert_eq!((claimed[0].key.as_deref(), claimed[0].dedupe_key.as_deref()), (Some(" "), Some(" ")));
    assert_eq!(claimed[0].content_type(), "image/png");
}
