//! The few messages of `google.pubsub.v1` that are spoken here. Fields that nobody here looks at are left out.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PubsubMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) data: Vec<u8>,
    #[prost(map = "string, string", tag = "2")]
    pub(super) attributes: HashMap<String, String>,
    #[prost(string, tag = "3")]
    pub(super) message_id: String,
    #[prost(string, tag = "5")]
    pub(super) ordering_key: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PublishRequest {
    #[prost(string, tag = "1")]
    pub(super) topic: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) messages: Vec<PubsubMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PublishResponse {
    #[prost(string, repeated, tag = "1")]
    pub(super) message_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Topic {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// `GetTopicRequest` and `DeleteTopicRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TopicRequest {
    #[prost(string, tag = "1")]
    pub(super) topic: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Subscription {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) topic: String,
    #[prost(int32, tag = "5")]
    pub(super) ack_deadline_seconds: i32,
    #[prost(bool, tag = "10")]
    pub(super) enable_message_ordering: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PullRequest {
    #[prost(string, tag = "1")]
    pub(super) subscription: String,
    #[prost(bool, tag = "2")]
    pub(super) return_immediately: bool,
    #[prost(int32, tag = "3")]
    pub(super) max_messages: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PullResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) received_messages: Vec<ReceivedMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReceivedMessage {
    #[prost(string, tag = "1")]
    pub(super) ack_id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) message: Option<PubsubMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AcknowledgeRequest {
    #[prost(string, tag = "1")]
    pub(super) subscription: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) ack_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ModifyAckDeadlineRequest {
    #[prost(string, tag = "1")]
    pub(super) subscription: String,
    #[prost(int32, tag = "3")]
    pub(super) ack_deadline_seconds: i32,
    #[prost(string, repeated, tag = "4")]
    pub(super) ack_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Empty {}
