//! Postrider's sinks: where messages go. Each has the same files: `config` (what an operator writes), `sink` (publishing)
//! and `outcome` (what the destination's answers mean).
//!
//! | module | what it holds |
//! |---|---|
//! | [`setting`], [`problem`] | values of a configuration that are more than text, and what is wrong with them |
//! | [`kind`], [`tls`] | what every type of sink has |
//! | [`format`](mod@format) | how a message is written: plain, in the event envelope, as a CloudEvent |
//! | [`wire`] | what every message carries, whatever the wire |
//! | [`stdout`] | JSON lines, for a first look and for tools that read them |
//! | [`http`] | webhooks: CloudEvents or a plain body, signed |
//! | [`kafka`] | Apache Kafka, by an idempotent producer |
//! | [`pubsub`] | Google Pub/Sub |
//! | [`nats`] | NATS JetStream: delivered when a stream has acknowledged it |
//! | [`amqp`] | RabbitMQ, with publisher confirms |
//! | [`redis`](mod@redis) | Redis Streams: one server or a cluster |
//! | [`sqs`], [`sns`] | Amazon's queues and topics |
//! | [`provider`] | messages to people: Slack, Telegram, WhatsApp, and adapters of your own |

#[cfg(feature = "amqp")]
pub mod amqp;
#[cfg(any(feature = "sqs", feature = "sns"))]
mod aws;
pub mod format;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod kind;
#[cfg(feature = "nats")]
pub mod nats;
pub mod problem;
#[cfg(feature = "provider")]
pub mod provider;
#[cfg(feature = "pubsub")]
pub mod pubsub;
#[cfg(feature = "redis")]
pub mod redis;
pub mod setting;
#[cfg(feature = "sns")]
pub mod sns;
#[cfg(feature = "sqs")]
pub mod sqs;
#[cfg(feature = "stdout")]
pub mod stdout;
pub mod tls;
pub mod wire;

#[cfg(feature = "redis")]
pub use crate::redis::{RedisClient, RedisConfig, RedisSink};
#[cfg(feature = "amqp")]
pub use amqp::{AmqpClient, AmqpConfig, AmqpSink};
#[cfg(any(feature = "sqs", feature = "sns"))]
pub use aws::AwsConfig;
pub use format::Format;
#[cfg(feature = "http")]
pub use http::{HttpClient, HttpConfig, HttpSink};
#[cfg(feature = "kafka")]
pub use kafka::{KafkaClient, KafkaConfig, KafkaSink};
pub use kind::{Binding, SinkClient, SinkConfig};
#[cfg(feature = "nats")]
pub use nats::{NatsClient, NatsConfig, NatsSink};
pub use problem::ConfigProblem;
#[cfg(feature = "provider")]
pub use provider::{Adapter, ProviderConfig, ProviderSink};
#[cfg(feature = "pubsub")]
pub use pubsub::{PubsubClient, PubsubConfig, PubsubSink};
#[cfg(feature = "sns")]
pub use sns::{SnsClient, SnsConfig, SnsSink};
#[cfg(feature = "sqs")]
pub use sqs::{SqsClient, SqsConfig, SqsSink};
#[cfg(feature = "stdout")]
pub use stdout::{StdoutConfig, StdoutSink};
