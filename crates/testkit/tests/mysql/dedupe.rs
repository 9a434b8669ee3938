//! Dedupe keys are compared byte for byte, whatever collation the server prefers.

use postrider::store::Delivered;
use postrider::{Enqueued, Store};

use crate::scene::{OnMySql, message};

#[tokio::test]
async fn keys_that_differ_in_case_accents_or_trailing_spaces_are_different() {
    let scene = OnMySql::new().await;
    let keys = ["order-7", "Order-7", "order-7 ", "ordér-7", "orde\u{301}r-7", "order-７", "ß", "ss"];
    let first = scene.enqueue(&scene.pool, keys.map(|key| message().dedupe_key(key)).into()).await.expect("valid");
    assert!(first.iter().all(Enqueued::is_new), "{first:?}");
    let again = scene.enqueue(&scene.pool, keys.map(|key| message().dedupe_key(key)).into()).await.expect("valid");
    let expected: Vec<_> = first.iter().map(|answer| Enqueued::Already(answer.id())).collect();
    assert_eq!(again, expected);
    let mut claimed: Vec<_> = scene.claim().await.into_iter().filter_map(|message| message.dedupe_key).collect();
    claimed.sort_unstable();
    let mut expected = keys.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(claimed, expected);
}

#[tokio::test]
async fn keys_of_the_greatest_length_work() {
    let scene = OnMySql::new().await;
    let (one, other) = ("ж".repeat(255) + "aa", "ж".repeat(255) + "ab");
    for key in [&one, &other, &one] {
        scene.put(vec![message().dedupe_key(key.clone()).key(key.clone())]).await;
    }
    let claimed = scene.claim().await;
    assert_eq!(claimed.iter().filter_map(|message| message.key.clone()).collect::<Vec<_>>(), [one, other]);
}

/// Long lists are worked off in several statements; large messages too.
#[tokio::test]
async fn many_and_large_messages_with_and_without_keys_arrive_in_their_order() {
    let scene = OnMySql::new().await;
    let large = "x".repeat(900_000);
    let messages: Vec<_> = (0..300)
        .map(|at| match at {
            at if at % 50 == 7 => postrider::Message::json("shop", "large", &large).key(at.to_string()),
            at if at % 3 == 0 => message().dedupe_key(format!("k{}", at % 30)).key(at.to_string()),
            at => message().key(at.to_string()),
        })
        .collect();
    let answers = scene.enqueue(&scene.pool, messages).await.expect("valid");
    let written: Vec<String> = (0..300).filter(|at| answers[*at].is_new()).map(|at| at.to_string()).collect();
    let mut arrived = Vec::new();
    loop {
        let claimed = scene.claim().await;
        if claimed.is_empty() {
            break;
        }
        let leases: Vec<_> = claimed.iter().map(|message| message.lease).collect();
        scene.store.ack(&leases, Delivered::Delete).await.expect("acked");
        arrived.extend(claimed.into_iter().filter_map(|message| message.key));
    }
    assert_eq!(arrived, written);
}
