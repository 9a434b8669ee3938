//! Sending the messages of one topic and ordering key.
//!
//! A lot is cut into requests by the same rules as the publisher's own, and no request is given to the publisher before
//! there is room for it: what is given to it cannot be taken back. Requests without an ordering key go at the same time;
//! those of a key go one after the other, and after a message that has to come again nothing of its key is sent.
//!
//! Pub/Sub refuses a whole request for one bad message in it, so the messages of a refused request are sent once more, each
//! alone. A message that is refused for good does not hold up its key: it is dead, and will not come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use google_cloud_pubsub::client::Publisher;
use google_cloud_pubsub::error::PublishError;
use google_cloud_pubsub::model::Message;
use postrider_core::Outcome;
use tokio::time::{Instant, timeout_at};

use super::client::{Connection, Shared};
use super::message::size;
use super::outcome::{Answer, answer, is_away, no_answer, no_time, refused_alone, waits};
use super::publishers::BATCH_BYTES;

/// A message and its place in the batch.
pub(super) struct Entry {
    pub(super) at: usize,
    pub(super) message: Message,
}

/// Messages of one topic and ordering key, in their order; without a key the order means nothing.
pub(super) struct Lot {
    pub(super) topic: String,
    pub(super) key: String,
    pub(super) entries: Vec<Entry>,
}

type Settled = Vec<(usize, Outcome)>;

/// One call of `publish` on its way.
pub(super) struct Trip<'a> {
    shared: &'a Shared,
    connection: &'a Arc<Connection>,
    /// No request begins later.
    begin_by: Instant,
    /// No answer is waited for longer.
    deadline: Instant,
    /// Whether the connection is still good for something.
    lost: AtomicBool,
}

impl<'a> Trip<'a> {
    pub(super) fn new(shared: &'a Shared, connection: &'a Arc<Connection>, start: Instant) -> Self {
        let (begin_by, deadline) = (start + shared.request_timeout(), start + shared.config.timeout);
        Self { shared, connection, begin_by, deadline, lost: AtomicBool::new(false) }
    }

    /// Whether something was waited for in vain.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Sends a lot and answers an outcome for each place.
    pub(super) async fn deliver(&self, lot: Lot) -> Settled {
        let requests = cut(&lot.entries, self.shared.config.batch_messages as usize, lot.topic.len());
        if lot.key.is_empty() {
            let publisher = self.connection.publisher(&lot.topic);
            let sent = requests.into_iter().map(|request| self.unordered(&lot, &publisher, request));
            return join_all(sent).await.into_iter().flatten().collect();
        }
        self.ordered(&lot, requests).await
    }

    async fn unordered(&self, lot: &Lot, publisher: &Publisher, request: &[Entry]) -> Settled {
        let answers = self.send(publisher, request).await;
        let again = request.iter().zip(answers).map(async |(entry, answer)| match answer {
            Answer::Is(outcome) => (entry.at, outcome),
            Answer::Refused => (entry.at, self.alone(lot, entry).await),
        });
        join_all(again).await
    }

    async fn ordered(&self, lot: &Lot, requests: Vec<&[Entry]>) -> Settled {
        let mut settled = Vec::with_capacity(lot.entries.len());
        let mut goes_on = true;
        for request in requests {
            if !goes_on {
                settled.extend(request.iter().map(|entry| (entry.at, waits())));
                continue;
            }
            let answers = self.send(&self.connection.fresh(&lot.topic, request.len()), request).await;
            let refused = answers.iter().position(|answer| *answer == Answer::Refused).unwrap_or(request.len());
            for (entry, answer) in request[..refused].iter().zip(answers) {
                let Answer::Is(outcome) = answer else { continue };
                goes_on &= outcome == Outcome::Accepted;
                settled.push((entry.at, outcome));
            }
            settled.extend(self.one_by_one(lot, &request[refused..], &mut goes_on).await);
        }
        settled
    }

    /// Sends messages of a key each alone, as long as it goes on.
    async fn one_by_one(&self, lot: &Lot, entries: &[Entry], goes_on: &mut bool) -> Settled {
        let mut settled = Vec::with_capacity(entries.len());
        for entry in entries {
            let outcome = match *goes_on {
                true => self.alone(lot, entry).await,
                false => waits(),
            };
            *goes_on &= matches!(outcome, Outcome::Accepted | Outcome::Reject(_));
            settled.push((entry.at, outcome));
        }
        settled
    }

    /// Sends a message alone, so that what is answered is meant for it.
    async fn alone(&self, lot: &Lot, entry: &Entry) -> Outcome {
        let publisher = self.connection.fresh(&lot.topic, 1);
        match self.send(&publisher, std::slice::from_ref(entry)).await.pop() {
            Some(Answer::Is(outcome)) => outcome,
            Some(Answer::Refused) => refused_alone(),
            None => no_time(),
        }
    }

    /// Sends messages as one request; one answer each.
    async fn send(&self, publisher: &Publisher, request: &[Entry]) -> Vec<Answer> {
        let room = timeout_at(self.begin_by, self.shared.room.acquire()).await;
        if room.is_err() || Instant::now() >= self.begin_by {
            return vec![Answer::Is(no_time()); request.len()];
        }
        // All are given before any is waited for, so they stay together and in order.
        let sent: Vec<_> = request.iter().map(|entry| publisher.publish(entry.message.clone())).collect();
        let results = join_all(sent.into_iter().map(|sent| timeout_at(self.deadline, sent))).await;
        results.into_iter().map(|result| self.heard(result.ok())).collect()
    }

    fn heard(&self, result: Option<Result<String, PublishError>>) -> Answer {
        match &result {
            Some(Ok(_)) => self.shared.note(false),
            Some(Err(PublishError::Rpc(error))) => {
                self.shared.note(is_away(error));
                self.lost.fetch_or(error.is_timeout(), Ordering::Relaxed);
            }
            Some(Err(PublishError::OrderingKeyPaused)) => {}
            // Nothing came, or the publisher is gone.
            Some(Err(_)) | None => self.lost.store(true, Ordering::Relaxed),
        }
        result.map_or_else(|| Answer::Is(no_answer()), answer)
    }
}

/// Cuts a lot into requests: so many messages, and no more than so many bytes unless one message alone has more.
fn cut(entries: &[Entry], most: usize, topic: usize) -> Vec<&[Entry]> {
    let mut requests = Vec::new();
    let (mut from, mut bytes) = (0, topic);
    for (at, entry) in entries.iter().enumerate() {
        let size = size(&entry.message);
        if at > from && (at - from >= most || bytes + size > BATCH_BYTES) {
            requests.push(&entries[from..at]);
            (from, bytes) = (at, topic);
        }
        bytes += size;
    }
    if from < entries.len() {
        requests.push(&entries[from..]);
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lot_is_cut_by_count_and_by_size() {
        let lengths = |sizes: &[usize], most: usize| {
            let entries = sizes.iter().enumerate();
            let entry = |(at, size): (usize, &usize)| Entry { at, message: Message::new().set_data(vec![0; *size]) };
            let entries: Vec<_> = entries.map(entry).collect();
            let requests = cut(&entries, most, 20);
            let places: Vec<_> = requests.iter().flat_map(|request| request.iter().map(|entry| entry.at)).collect();
            assert_eq!(places, (0..sizes.len()).collect::<Vec<_>>(), "all, and in their order");
            requests.iter().map(|request| request.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[], 100), [0; 0]);
        assert_eq!(lengths(&[1; 250], 100), [100, 100, 50]);
        assert_eq!(lengths(&[400_000, 400_000, 400_000, 10], 100), [2, 2]);
        assert_eq!(lengths(&[5_000_000, 10, 999_999, 10], 100), [1, 1, 1, 1]);
        assert_eq!(lengths(&[1, 1], 1), [1, 1]);
    }
}
