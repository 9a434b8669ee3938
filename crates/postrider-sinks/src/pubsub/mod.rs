//! Google Pub/Sub, by Google's own client.
//!
//! One [`PubsubClient`] holds what all routes share: credentials, connections, and a publisher for each topic, of which
//! only so many are kept. [`PubsubClient::sink`] binds a route's destination to it.
//!
//! **Delivered** means that Pub/Sub answered with a message id. It has the message on disk in at least two zones then, for
//! every subscription that existed at that moment; a topic without subscriptions takes messages and drops them. The
//! emulator keeps everything in memory.
//!
//! It fails message by message. Whatever a request ends with, the next one starts from scratch: nothing is tried again
//! here, no request goes on after [`publish`](postrider_core::Sink::publish) has answered, and no connection on which
//! something was waited for in vain is used again. With `ordering` what comes after a message that has to come again waits
//! for it.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what an operator writes |
//! | `topic` | names of topics, the operator's and those made of data |
//! | `message` | what a message looks like on the wire, within the limits of Pub/Sub |
//! | `client`, `publishers` | credentials, connection and publishers that all routes share |
//! | `sink`, `lot`, `outcome` | publishing, and what the answers mean |

mod client;
mod config;
mod lot;
mod message;
mod outcome;
mod publishers;
mod sink;
mod topic;

pub use client::PubsubClient;
pub use config::PubsubConfig;
pub use sink::PubsubSink;
