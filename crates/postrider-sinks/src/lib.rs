//! Postrider's sinks: where messages go. Each has the same files: `config` (what an operator writes), `sink` (publishing)
//! and `outcome` (what the destination's answers mean).
//!
//! | module | what it holds |
//! |---|---|
//! | [`setting`], [`problem`] | values of a configuration that are more than text, and what is wrong with them |
//! | [`kind`], [`tls`] | what every type of sink has |
//! | [`format`] | how a message is written: plain, in the event envelope, as a CloudEvent |
//! | [`wire`] | what every message carries, whatever the wire |
//! | [`stdout`] | JSON lines, for a first look and for tools that read them |
//! | [`http`] | webhooks: CloudEvents or a plain body, signed |
//! | [`pubsub`] | Google Pub/Sub |

pub mod format;
#[cfg(feature = "http")]
pub mod http;
pub mod kind;
pub mod problem;
#[cfg(feature = "pubsub")]
pub mod pubsub;
pub mod setting;
#[cfg(feature = "stdout")]
pub mod stdout;
pub mod tls;
pub mod wire;

pub use format::Format;
#[cfg(feature = "http")]
pub use http::{HttpClient, HttpConfig, HttpSink};
pub use kind::{Binding, SinkClient, SinkConfig};
pub use problem::ConfigProblem;
#[cfg(feature = "pubsub")]
pub use pubsub::{PubsubClient, PubsubConfig, PubsubSink};
#[cfg(feature = "stdout")]
pub use stdout::{StdoutConfig, StdoutSink};
