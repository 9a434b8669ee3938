//! Postrider's sinks: where messages go. Each has the same files: `config` (what an operator writes), `sink` (publishing)
//! and `outcome` (what the destination's answers mean).
//!
//! | module | what it holds |
//! |---|---|
//! | [`setting`], [`problem`] | values of a configuration that are more than text, and what is wrong with them |
//! | [`wire`] | what every message carries, whatever the wire |
//! | [`stdout`] | JSON lines, for a first look and for tools that read them |
//! | [`http`] | webhooks: CloudEvents or a plain body, signed |

#[cfg(feature = "http")]
pub mod http;
pub mod problem;
#[cfg(feature = "provider")]
pub mod provider;
pub mod setting;
#[cfg(feature = "stdout")]
pub mod stdout;
pub mod wire;

#[cfg(feature = "http")]
pub use http::{HttpClient, HttpConfig, HttpSink};
pub use problem::ConfigProblem;
#[cfg(feature = "stdout")]
pub use stdout::{StdoutConfig, StdoutSink};
