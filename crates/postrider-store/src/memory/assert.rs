//! Assertions for users' tests. Their messages list what was enqueued, never the payloads.

use std::fmt::Write;

use super::store::MemoryStore;
use super::table::StoredMessage;

impl MemoryStore {
    /// Panics unless a message of this namespace and topic was committed; answers all of them, oldest first.
    #[track_caller]
    pub fn assert_enqueued(&self, namespace: &str, topic: &str) -> Vec<StoredMessage> {
        let found = self.of(namespace, topic);
        assert!(!found.is_empty(), "no message was enqueued for {namespace} {topic}; {}", self.list());
        found
    }

    /// Panics unless exactly one message of this namespace and topic was committed; answers it.
    #[track_caller]
    pub fn assert_enqueued_once(&self, namespace: &str, topic: &str) -> StoredMessage {
        let mut found = self.of(namespace, topic);
        match (found.pop(), found.len()) {
            (Some(message), 0) => message,
            (last, others) => {
                let count = others + usize::from(last.is_some());
                panic!("{count} messages were enqueued for {namespace} {topic} instead of one; {}", self.list())
            }
        }
    }

    /// Panics if any message was committed.
    #[track_caller]
    pub fn assert_nothing_enqueued(&self) {
        assert!(self.enqueued().is_empty(), "messages were enqueued; {}", self.list());
    }

    fn of(&self, namespace: &str, topic: &str) -> Vec<StoredMessage> {
        let mut messages = self.enqueued();
        messages.retain(|message| message.namespace == namespace && message.topic == topic);
        messages
    }

    fn list(&self) -> String {
        let messages = self.enqueued();
        if messages.is_empty() {
            return "the outbox is empty".into();
        }
        let mut list = String::from("the outbox holds:");
        for message in messages {
            let StoredMessage { id, namespace, topic, key, dedupe_key, status, .. } = message;
            let (key, dedupe_key) = (key.unwrap_or_else(|| "-".into()), dedupe_key.unwrap_or_else(|| "-".into()));
            let status = status.as_str();
            // Writing to a string cannot fail.
            let _ = write!(list, "\n  {namespace} {topic} {status} id {id} key {key} dedupe key {dedupe_key}");
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Message;

    use super::*;

    async fn store_with(messages: impl IntoIterator<Item = Message>) -> MemoryStore {
        let store = MemoryStore::new();
        let mut transaction = store.begin();
        store.outbox().enqueue_many(&mut transaction, messages).await.expect("the messages are valid");
        transaction.commit();
        store
    }

    fn secret(topic: &'static str) -> Message {
        Message::json("shop", topic, "hidden").header("authorization", "hidden")
    }

    #[tokio::test]
    async fn what_was_enqueued_is_found() {
        let store = store_with([secret("placed"), secret("placed"), secret("paid")]).await;
        assert_eq!(store.assert_enqueued("shop", "placed").len(), 2);
        assert_eq!(store.assert_enqueued_once("shop", "paid").topic, "paid");
    }

    #[tokio::test]
    #[should_panic(expected = "no message was enqueued for shop sent; the outbox holds:\n  shop placed pending id ")]
    async fn what_is_missing_is_told_with_what_is_there() {
        store_with([secret("placed")]).await.assert_enqueued("shop", "sent");
    }

    #[tokio::test]
    #[should_panic(expected = "2 messages were enqueued for shop placed instead of one")]
    async fn twice_is_not_once() {
        store_with([secret("placed"), secret("placed")]).await.assert_enqueued_once("shop", "placed");
    }

    #[tokio::test]
    #[should_panic(expected = "messages were enqueued; the outbox holds:")]
    async fn something_is_not_nothing() {
        store_with([secret("placed")]).await.assert_nothing_enqueued();
    }

    #[tokio::test]
    async fn i10_neither_list_nor_debug_output_shows_payloads() {
        let store = store_with([secret("placed")]).await;
        assert!(!store.list().contains("hidden"));
        assert!(!format!("{store:?}").contains("hidden"));
    }
}
