//! The publishers of a connection.
//!
//! Those of messages without an ordering key are one for each topic, and only so many, because topics may come from data.
//! A request with an ordering key has a publisher of its own: a publisher keeps a task for every key that it has ever seen,
//! stops a key after a failure, and would let another call that resumes the key send what comes after the failure. One that
//! ends with its request has no past, and knows when the request is complete.

use std::collections::HashMap;
use std::time::Duration;

use google_cloud_pubsub::client::{BasePublisher, Publisher};

/// The most topics with a publisher at the same time.
const MOST_TOPICS: usize = 128;
/// How long a request that is not full waits for more: only until all messages of a lot are there.
const GATHER: Duration = Duration::from_millis(2);
/// How large a request becomes at most, unless one message alone is larger.
pub(super) const BATCH_BYTES: usize = 1_000_000;

pub(super) struct Publishers {
    base: BasePublisher,
    batch_messages: u32,
    open: HashMap<String, Open>,
    uses: u64,
}

struct Open {
    publisher: Publisher,
    last_use: u64,
}

impl Publishers {
    pub(super) fn new(base: BasePublisher, batch_messages: u32) -> Self {
        Self { base, batch_messages, open: HashMap::new(), uses: 0 }
    }

    /// The publisher of a topic, for messages without an ordering key.
    pub(super) fn of(&mut self, topic: &str) -> Publisher {
        self.uses += 1;
        if let Some(open) = self.open.get_mut(topic) {
            open.last_use = self.uses;
            return open.publisher.clone();
        }
        if self.open.len() >= MOST_TOPICS {
            let oldest = self.open.iter().min_by_key(|(_, open)| open.last_use).map(|(topic, _)| topic.clone());
            oldest.and_then(|topic| self.open.remove(&topic));
        }
        let publisher = self.fresh(topic, self.batch_messages);
        self.open.insert(topic.to_owned(), Open { publisher: publisher.clone(), last_use: self.uses });
        publisher
    }

    /// A publisher that nobody else has, for requests of so many messages.
    pub(super) fn fresh(&self, topic: &str, messages: u32) -> Publisher {
        // Hedging stays off: it sends messages twice.
        self.base
            .publisher(topic)
            .set_message_count_threshold(messages)
            .set_byte_threshold(u32::try_from(BATCH_BYTES).unwrap_or(u32::MAX))
            .set_delay_threshold(GATHER)
            .set_or_clear_hedging_options(None)
            .build()
    }

    #[cfg(test)]
    fn topics(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use google_cloud_auth::credentials::anonymous;

    async fn publishers() -> Publishers {
        let base = BasePublisher::builder()
            .with_endpoint("http://127.0.0.1:1")
            .with_credentials(anonymous::Builder::new().build());
        Publishers::new(base.build().await.expect("it connects to nothing"), 100)
    }

    #[tokio::test]
    async fn s21_a_million_topics_keep_no_more_than_the_last_ones() {
        let mut publishers = publishers().await;
        for number in 0..5_000 {
            publishers.of("projects/p/topics/always");
            publishers.of(&format!("projects/p/topics/t{number}"));
        }
        assert_eq!(publishers.topics(), MOST_TOPICS);
        assert!(publishers.open.contains_key("projects/p/topics/always"), "what is used stays");
        assert!(!publishers.open.contains_key("projects/p/topics/t0"));
        // What was dropped ends its task.
        testkit::eventually(Duration::from_secs(10), || async {
            tokio::runtime::Handle::current().metrics().num_alive_tasks() < MOST_TOPICS + 20
        })
        .await;
    }
}
