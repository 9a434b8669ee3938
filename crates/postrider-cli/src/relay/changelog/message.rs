//! An entry of the changelog as a message for a sink.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider::{ClaimedMessage, Lease, Payload, RowAddress};
use postrider_changelog::Entry;
use uuid::Uuid;

/// The namespace and the topic of every entry.
pub const NAME: &str = "changelog";

/// The message of an entry. Its id is the entry's on every attempt; its key is the source, so that brokers with partitions
/// keep the order; its payload is the entry as the HTTP endpoint gives it.
pub fn of(entry: &Entry, source: &str, worker: Uuid, attempt: i32) -> Result<ClaimedMessage, serde_json::Error> {
    let payload = Payload::Json(serde_json::to_string(entry)?);
    let lease = Lease { id: entry.id, worker, attempt, address: RowAddress::default() };
    let mut message = ClaimedMessage::new(lease, NAME.to_owned(), NAME.to_owned(), payload);
    message.key = Some(source.to_owned());
    message.created_at_micros = micros(entry.created_at);
    message.age = SystemTime::now().duration_since(entry.created_at).unwrap_or(Duration::ZERO);
    Ok(message)
}

fn micros(time: SystemTime) -> i64 {
    i64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}
