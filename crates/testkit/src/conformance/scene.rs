//! The usual messages, requests and settlements of the suite.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider::operate::{Change, Filter};
use postrider::store::{Bury, ClaimOrder, ClaimRequest, LARGEST_CLAIM, Nack, Order, Purge, Release, Scope};
use postrider::store::{Delivered, Finished};
use postrider::{ClaimedMessage, Lease, Message, Settled, Store};
use uuid::Uuid;

/// How long a lease lasts unless a test says otherwise. Time passes by [`Harness::pass_time`](super::Harness::pass_time),
/// so it costs nothing to be long, and a machine that stands still does not end it.
pub const LEASE: Duration = Duration::from_secs(600);
/// The attempts allowed unless a test says otherwise; enough that no row becomes suspect by its last attempt.
pub const MAX_ATTEMPTS: i32 = 10;
/// A second, which is far more than two statements are apart.
pub const SECOND: Duration = Duration::from_secs(1);
/// A minute, which is longer than a machine stands still: what is to happen before or after a time is so far from it.
pub const MINUTE: Duration = Duration::from_secs(60);
/// An hour.
pub const HOUR: Duration = Duration::from_secs(3_600);

/// No row at all.
pub const NONE: [Uuid; 0] = [];

/// An ordinary message.
pub fn message() -> Message {
    message_in("shop", "order.placed")
}

/// An ordinary message of a namespace and topic.
pub fn message_in(namespace: &str, topic: &str) -> Message {
    Message::json(namespace.to_owned(), topic.to_owned(), &serde_json::json!({"order": 7}))
}

/// A claim of everything, in the usual order.
pub fn request(worker: Uuid) -> ClaimRequest {
    ClaimRequest {
        scope: Scope::all(),
        worker,
        limit: 100,
        max_bytes: u64::MAX,
        lease: LEASE,
        max_attempts: MAX_ATTEMPTS,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: LARGEST_CLAIM,
        thorough: false,
    }
}

/// A claim of suspects, by a worker of its own.
pub fn suspects() -> ClaimRequest {
    ClaimRequest { order: ClaimOrder::Suspects, ..request(Uuid::new_v4()) }
}

/// A nack with the usual text.
pub fn nack(lease: Lease, delay: Duration) -> Nack {
    Nack { lease, delay, error: "broker down".into() }
}

/// A bury with the usual text.
pub fn bury(lease: Lease) -> Bury {
    Bury { lease, error: "refused for good".into() }
}

/// A release that leaves everything as it was.
pub fn release(lease: Lease) -> Release {
    Release { lease, delay: Duration::ZERO, error: None }
}

/// A purge of everything that finished this long ago.
pub fn purge(finished: Finished, older_than: Duration) -> Purge {
    Purge { scope: Scope::all(), finished, older_than, limit: 100 }
}

/// A replay of everything dead.
pub fn replay_all() -> Change {
    change(Filter::default())
}

/// A change of up to a hundred dead messages.
pub fn change(filter: Filter) -> Change {
    Change { who: "the suite".into(), filter, limit: 100 }
}

/// The ids of claimed messages, in their order.
pub fn ids(messages: &[ClaimedMessage]) -> Vec<Uuid> {
    messages.iter().map(|message| message.id).collect()
}

/// The ids without their order.
pub fn set(ids: impl IntoIterator<Item = Uuid>) -> BTreeSet<Uuid> {
    ids.into_iter().collect()
}

/// A duration in microseconds.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("tests use short durations")
}

/// Acks one message and keeps its row; it must work.
pub async fn ack(store: &dyn Store, lease: Lease) {
    assert_eq!(store.ack(&[lease], Delivered::Keep).await.expect("the store acks"), [Settled::Done]);
}

/// Buries one message; it must work.
pub async fn give_up(store: &dyn Store, lease: Lease) {
    assert_eq!(store.bury(&[bury(lease)]).await.expect("the store buries"), [Settled::Done]);
}

/// Puts one message back so that it is due at once; it must work.
pub async fn fail(store: &dyn Store, lease: Lease) {
    assert_eq!(store.nack(&[nack(lease, Duration::ZERO)]).await.expect("the store nacks"), [Settled::Done]);
}
