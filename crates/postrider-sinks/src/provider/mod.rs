//! Chat providers: each message goes to one recipient through the adapter of its provider.
//!
//! The headers `provider` and `recipient` say where a message goes, its payload says what ([`Normalised`]), and
//! `correlation-id` and `channel-message-id` tie it to what the producer knows. One [`ProviderSink`] holds the adapters
//! by their names: Slack, Telegram, WhatsApp, a no-op that stands for any of them, and your own ([`Adapter`]).
//!
//! Each provider has room and a breaker of its own, so that one that is down or refuses its token neither holds up the
//! others nor costs its backlog more than a few attempts. None of the three knows an idempotency key: when an answer is
//! lost the message is sent again, and the recipient may see it twice.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what an operator writes |
//! | `adapter`, `payload` | the interface, and what a message becomes for it |
//! | `slack`, `telegram`, `whatsapp`, `noop` | the adapters, each with its table of errors |
//! | `endpoint` | requests and answers, the same for all of them |
//! | `sink`, `outcome` | choosing the adapter, and what kinds of errors there are |

mod adapter;
mod config;
mod endpoint;
mod noop;
mod outcome;
mod payload;
mod sink;
mod slack;
mod telegram;
mod whatsapp;

pub use adapter::{Adapter, CHANNEL_MESSAGE_ID, CORRELATION_ID, Correlation, Outbound, PROVIDER, RECIPIENT};
pub use config::{ProviderConfig, SlackConfig, TelegramConfig, WhatsappConfig};
pub use noop::{NoopAdapter, NoopAnswer, NoopConfig, NoopRecord};
pub use payload::{Link, Normalised};
pub use sink::{ProviderSink, ProviderSinkBuilder};
