//! The producer's side: all or nothing, once per dedupe key, and what comes out is what went in.

use std::time::Duration;

use postrider::message::InvalidMessage;
use postrider::{EnqueueError, Enqueued, Message, Payload, State};
use serde_json::value::RawValue;
use tokio::time::timeout;
use uuid::Uuid;

use super::harness::Harness;
use super::scene::{ack, fail, give_up, message, message_in};

/// Long enough for a statement to be answered, if nothing held it up.
const A_WHILE: Duration = Duration::from_millis(150);

pub async fn s0_26_s0_32_s0_50_a_new_row_is_pending_due_now_and_not_leased(h: impl Harness) {
    let before = h.now_micros().await;
    let id = h.put(message()).await;
    let after = h.now_micros().await;
    let row = h.row(id).await;
    assert_eq!((row.status, row.attempts, row.max_attempts), (State::Pending, 0, None));
    assert_eq!((row.locked_by, row.locked_until, row.last_error, row.delivered_at), (None, None, None, None));
    assert!((before..=after).contains(&row.created_at));
    assert_eq!((row.updated_at, row.next_attempt_at), (row.created_at, row.created_at));
}

pub async fn s0_9_the_row_has_the_id_of_the_message(h: impl Harness) {
    let message = message();
    let id = message.id();
    assert_eq!(h.put(message).await, id);
    assert_eq!(h.claim_one(Uuid::new_v4()).await.id, id);
}

pub async fn r01_s0_46_a_rolled_back_message_leaves_no_row(h: impl Harness) {
    let mut transaction = h.begin().await;
    h.write(&mut transaction, vec![message().dedupe_key("k"), message()]).await.expect("the messages are valid");
    h.roll_back(transaction).await;
    assert_eq!(h.rows().await, []);
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
    h.put(message().dedupe_key("k")).await;
}

pub async fn s0_42_a_message_is_not_claimable_before_its_commit(h: impl Harness) {
    let mut transaction = h.begin().await;
    h.write(&mut transaction, vec![message()]).await.expect("the message is valid");
    assert!(h.claim_all(Uuid::new_v4()).await.is_empty());
    h.commit(transaction).await;
    h.claim_one(Uuid::new_v4()).await;
}

pub async fn s0_43_s0_44_a_dedupe_key_that_is_there_writes_no_second_row(h: impl Harness) {
    let first = h.put(message().dedupe_key("order-7")).await;
    let again = h.enqueue_many(vec![message().dedupe_key("order-7")]).await.expect("a duplicate is no error");
    assert_eq!(again, [Enqueued::Already(first)]);
    assert_eq!(h.rows().await.len(), 1);
}

pub async fn s0_44_a_duplicate_leaves_the_transaction_usable(h: impl Harness) {
    h.put(message().dedupe_key("order-7")).await;
    let mut transaction = h.begin().await;
    let again =
        h.write(&mut transaction, vec![message().dedupe_key("order-7")]).await.expect("a duplicate is no error");
    assert!(!again[0].is_new());
    let other = h.write(&mut transaction, vec![message()]).await.expect("the transaction is still usable");
    h.commit(transaction).await;
    assert!(h.find(other[0].id()).await.is_some());
}

pub async fn s0_88_one_call_with_a_key_twice_writes_one_row(h: impl Harness) {
    let messages = vec![message().dedupe_key("k"), message().dedupe_key("k"), message()];
    let answers = h.enqueue_many(messages).await.expect("a duplicate is no error");
    assert_eq!(answers[1], Enqueued::Already(answers[0].id()));
    assert!(answers[0].is_new() && answers[2].is_new());
    assert_eq!(h.rows().await.len(), 2);
}

pub async fn s0_43_a_transaction_sees_the_keys_it_wrote_itself(h: impl Harness) {
    let mut transaction = h.begin().await;
    let first = h.write(&mut transaction, vec![message().dedupe_key("k")]).await.expect("valid");
    let again = h.write(&mut transaction, vec![message().dedupe_key("k")]).await.expect("a duplicate is no error");
    h.commit(transaction).await;
    assert_eq!(again, [Enqueued::Already(first[0].id())]);
}

pub async fn s0_35_a_dedupe_key_counts_within_its_namespace_and_topic(h: impl Harness) {
    for (namespace, topic) in [("a", "x"), ("a", "y"), ("b", "x")] {
        h.put(message_in(namespace, topic).dedupe_key("k")).await;
    }
    assert_eq!(h.rows().await.len(), 3);
}

pub async fn t30_finished_rows_still_hold_their_dedupe_keys(h: impl Harness) {
    let delivered = h.put_and_claim(message().dedupe_key("delivered")).await;
    ack(&*h.store(), delivered.lease).await;
    let dead = h.put_and_claim(message().dedupe_key("dead")).await;
    give_up(&*h.store(), dead.lease).await;
    for (key, id) in [("delivered", delivered.id), ("dead", dead.id)] {
        let again = h.enqueue_many(vec![message().dedupe_key(key)]).await.expect("a duplicate is no error");
        assert_eq!(again, [Enqueued::Already(id)]);
    }
}

pub async fn r03_s0_45_s0_89_the_loser_of_a_race_waits_and_learns_the_winner_s_id(h: impl Harness) {
    let (mut first, mut second) = (h.begin().await, h.begin().await);
    let won = h.write(&mut first, vec![message().dedupe_key("k")]).await.expect("valid");
    let mut lost = Box::pin(h.write(&mut second, vec![message().dedupe_key("k")]));
    assert!(timeout(A_WHILE, &mut lost).await.is_err(), "the winner may still roll back, so there is no answer yet");
    h.commit(first).await;
    assert_eq!(lost.await.expect("a duplicate is no error"), [Enqueued::Already(won[0].id())]);
    h.write(&mut second, vec![message()]).await.expect("the loser's transaction is still usable");
    h.commit(second).await;
    assert_eq!(h.rows().await.len(), 2);
}

pub async fn r03_a_key_is_free_again_when_its_first_producer_rolls_back(h: impl Harness) {
    let (mut first, mut second) = (h.begin().await, h.begin().await);
    h.write(&mut first, vec![message().dedupe_key("k")]).await.expect("valid");
    let mut next = Box::pin(h.write(&mut second, vec![message().dedupe_key("k")]));
    assert!(timeout(A_WHILE, &mut next).await.is_err(), "the first may still commit, so there is no answer yet");
    h.roll_back(first).await;
    let answer = next.await.expect("the key is free")[0];
    h.commit(second).await;
    assert!(answer.is_new());
    assert_eq!(h.rows().await.iter().map(|row| row.id).collect::<Vec<_>>(), [answer.id()]);
}

pub async fn r03_producers_that_wait_for_each_other_get_a_retryable_error(h: impl Harness) {
    let (mut first, mut second) = (h.begin().await, h.begin().await);
    h.write(&mut first, vec![message().dedupe_key("a")]).await.expect("valid");
    let other = h.write(&mut second, vec![message().dedupe_key("b")]).await;
    if !h.store().capabilities().parallel_writers {
        // They cannot wait for each other: the second waits for the end of the first, and not for ever.
        assert!(other.is_err_and(|error| error.is_retryable()), "the first transaction is still open");
        h.roll_back(second).await;
        h.commit(first).await;
        assert_eq!(h.rows().await.len(), 1);
        return;
    }
    other.expect("valid");
    let answers: [_; 2] = tokio::join!(
        h.write(&mut first, vec![message().dedupe_key("b")]),
        h.write(&mut second, vec![message().dedupe_key("a")]),
    )
    .into();
    let refused: Vec<&EnqueueError> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(matches!(refused[..], [error] if error.is_retryable()), "one is refused, the other goes on: {answers:?}");
    h.roll_back(first).await;
    h.roll_back(second).await;
    assert_eq!(h.rows().await, []);
}

pub async fn r08_s0_38_s0_39_a_key_that_is_not_the_tenant_s_is_refused_and_the_transaction_lives(h: impl Harness) {
    let (tenant, other) = (Uuid::new_v4(), Uuid::new_v4());
    let mut transaction = h.begin().await;
    let bad = message().tenant(tenant).dedupe_key(format!("{other}/k"));
    let refused = h.write(&mut transaction, vec![bad]).await.expect_err("the key is another tenant's");
    assert!(matches!(refused, EnqueueError::Invalid { source: InvalidMessage::TenantMismatch { .. }, .. }));
    let good = message().tenant(tenant).dedupe_key(format!("{tenant}/k"));
    h.write(&mut transaction, vec![good]).await.expect("the transaction is still usable");
    h.commit(transaction).await;
    assert_eq!(h.rows().await.len(), 1);
}

pub async fn s0_40_tenant_and_dedupe_key_are_free_without_each_other(h: impl Harness) {
    let tenant = Uuid::new_v4();
    h.put_all([message().tenant(tenant), message().dedupe_key("anything")]).await;
    let simple = tenant.simple();
    h.put(message().tenant(tenant).dedupe_key(format!("{simple}/k"))).await;
    assert_eq!(h.rows().await.len(), 3);
}

pub async fn r06_if_one_of_many_messages_is_refused_none_is_written(h: impl Harness) {
    let bad = Message::json("", "topic", &1);
    let refused = h.enqueue_many(vec![message(), bad, message()]).await.expect_err("the second is bad");
    assert!(matches!(refused, EnqueueError::Invalid { index: 1, .. }), "{refused:?}");
    assert_eq!(h.rows().await, []);
}

pub async fn many_messages_are_answered_in_their_order(h: impl Harness) {
    let known = h.put(message().dedupe_key("known")).await;
    let messages: Vec<Message> = (0..50)
        .map(|at| if at % 7 == 3 { message().dedupe_key("known") } else { message().key(at.to_string()) })
        .collect();
    let own: Vec<Uuid> = messages.iter().map(Message::id).collect();
    let answers = h.enqueue_many(messages).await.expect("valid");
    for (at, answer) in answers.iter().enumerate() {
        let expected = if at % 7 == 3 { Enqueued::Already(known) } else { Enqueued::New(own[at]) };
        assert_eq!(*answer, expected, "message {at}");
    }
}

pub async fn no_message_at_all_is_fine(h: impl Harness) {
    assert_eq!(h.enqueue_many(Vec::new()).await.expect("nothing to do"), []);
}

pub async fn r07_every_field_comes_through_unchanged(h: impl Harness) {
    let tenant = Uuid::new_v4();
    let sent = message_in("shop", "order/placed:v1")
        .key("clé-Ж-7")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/ключ"))
        .header("X-Trace", "ünï \"quoted\" \\ 'x'")
        .max_attempts(4);
    let claimed = h.put_and_claim(sent).await;
    assert_eq!((claimed.namespace.as_str(), claimed.topic.as_str()), ("shop", "order/placed:v1"));
    assert_eq!((claimed.key.as_deref(), claimed.tenant_id), (Some("clé-Ж-7"), Some(tenant)));
    assert_eq!(claimed.dedupe_key, Some(format!("{tenant}/ключ")));
    assert_eq!(claimed.headers.get("x-trace").map(String::as_str), Some("ünï \"quoted\" \\ 'x'"));
    assert_eq!((claimed.max_attempts, claimed.content_type()), (Some(4), "application/json"));
    assert_eq!(claimed.payload.to_value().expect("it is JSON"), serde_json::json!({"order": 7}));
}

pub async fn r07_absent_fields_stay_absent(h: impl Harness) {
    let claimed = h.put_and_claim(message()).await;
    assert_eq!((claimed.key, claimed.tenant_id, claimed.dedupe_key), (None, None, None));
    assert!(claimed.headers.is_empty());
}

pub async fn r07_bytes_arrive_byte_for_byte_with_their_content_type(h: impl Harness) {
    for bytes in [Vec::new(), (0..=255).collect::<Vec<u8>>(), vec![0; 100_000]] {
        let claimed = h.put_and_claim(Message::bytes("shop", "raw", "application/x-protobuf", bytes.clone())).await;
        assert_eq!(claimed.content_type(), "application/x-protobuf");
        assert!(matches!(&claimed.payload, Payload::Bytes(got) if *got == bytes), "{:?}", claimed.payload);
        ack(&*h.store(), claimed.lease).await;
    }
}

pub async fn r07_json_is_the_same_value_and_the_same_bytes_on_every_attempt(h: impl Harness) {
    let text =
        r#"{"b":1,"a":[true,null,"\u00e9 \"x\""],"big":123456789012345678901234567890,"nested":{"z":{},"y":-0.5}}"#;
    let payload = RawValue::from_string(text.into()).expect("it is JSON");
    let worker = Uuid::new_v4();
    h.put(Message::json("shop", "t", &payload)).await;
    let first = h.claim_one(worker).await;
    fail(&*h.store(), first.lease).await;
    let second = h.claim_one(worker).await;
    assert_eq!(first.payload.as_bytes(), second.payload.as_bytes());
    assert_eq!(
        second.payload.to_value().expect("JSON"),
        serde_json::from_str::<serde_json::Value>(text).expect("JSON")
    );
    let arrived = std::str::from_utf8(second.payload.as_bytes()).expect("JSON is UTF-8");
    assert!(arrived.contains("123456789012345678901234567890"), "numbers are exact: {arrived}");
}
