//! Apache Kafka, by an idempotent producer.
//!
//! **Delivered** means that the leader of the partition and all replicas that were in sync at that time have the message
//! (`acks=all`). How many that are is the topic's `min.insync.replicas`: with 1 it may be the leader alone, whose loss is the
//! loss of the message. Kafka does not wait for disks.
//!
//! One [`KafkaClient`] holds one producer of librdkafka, which connects in the background, comes back by itself after an
//! outage and gathers what all routes send at about the same time into few requests. [`KafkaClient::sink`] binds a route's
//! topic to it.
//!
//! **Order.** Messages of one key go to one partition (Java's murmur2), and what one call of `publish` gives to the producer
//! stays in its order there, also while librdkafka sends it again: that is what idempotence is for. It does not hold back
//! what follows a message that fails for good or by its time limit: librdkafka counts anew and goes on with the next one. So
//! when a message comes out of a call as failed, a later one of its key in the same call may have been accepted, and the
//! failed one comes after it. Who needs the order of a key through failures gives no two messages of a key to one call, as a
//! dispatcher does that keeps order per key. The setting of librdkafka against this, `enable.gapless.guarantee`, ends the
//! whole producer with every such failure, for all keys and topics, and is experimental; it is not used. What cannot even be
//! given to the producer holds back the rest of its key in that call.
//!
//! **How it fails.** A message has a time limit in librdkafka that ends before that of the call, so that its report comes
//! first, and nothing of a call is sent after it. A producer that is broken for good (a fatal error of idempotence) is replaced,
//! and so is one that has seen too many topics from data.
//!
//! | module | what it holds |
//! |---|---|
//! | `config`, `option` | what an operator writes, and which of librdkafka's properties are his |
//! | `property` | what librdkafka is told |
//! | `topic` | names of topics |
//! | `producer` | the producer, its reports, and its successor |
//! | `sink`, `outcome` | publishing, and what the reports mean |

mod config;
mod option;
mod outcome;
mod producer;
mod property;
mod sink;
mod topic;

pub use config::{Compression, KafkaConfig, Protocol, SaslMechanism};
pub use sink::{KafkaClient, KafkaSink};
