//! The interface of a provider, and what a message becomes for it.
//!
//! An adapter gets an [`Outbound`] and answers one [`Outcome`]; it knows no store, no lease and no retry policy. What
//! cannot become an `Outbound` is unsendable and never reaches an adapter.
//!
//! ```
//! use async_trait::async_trait;
//! use postrider_core::Outcome;
//! use postrider_sinks::provider::{Adapter, Outbound, ProviderSink};
//!
//! /// Text messages through a gateway of your own.
//! struct Sms;
//!
//! #[async_trait]
//! impl Adapter for Sms {
//!     async fn send(&self, outbound: &Outbound<'_>) -> Outcome {
//!         if !outbound.recipient.starts_with('+') {
//!             return Outcome::Unsendable("the recipient is no number with a + and its country".into());
//!         }
//!         match gateway(outbound.recipient, &outbound.payload.plain(), outbound.correlation.event_id).await {
//!             Ok(()) => Outcome::Accepted,
//!             Err(503) => Outcome::retry("the gateway is overloaded"),
//!             Err(422) => Outcome::Reject("the gateway does not take this number".into()),
//!             Err(_) => Outcome::Unknown("the gateway gave no clear answer".into()),
//!         }
//!     }
//! }
//! # async fn gateway(_: &str, _: &str, _: uuid::Uuid) -> Result<(), u16> { Ok(()) }
//!
//! let sink = ProviderSink::builder().adapter("sms", Sms).build()?;
//! # Ok::<(), postrider_sinks::ConfigProblem>(())
//! ```

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::{ClaimedMessage, Outcome};
use uuid::Uuid;

use super::payload::Normalised;

/// The header with the provider's name, such as `slack`. Names have case.
pub const PROVIDER: &str = "provider";
/// The header with the recipient, as its provider writes it: a channel, a chat, a telephone number. The message's key
/// is never taken in its place: a key that happens to be somebody's number must not become a message to them.
pub const RECIPIENT: &str = "recipient";
/// The header with the producer's correlation id, if there is one.
pub const CORRELATION_ID: &str = "correlation-id";
/// The header with the producer's id of the message in its channel, if there is one.
pub const CHANNEL_MESSAGE_ID: &str = "channel-message-id";

/// The longest recipient, in bytes. No provider has longer ones.
const LONGEST_RECIPIENT: usize = 255;

/// Sends messages to one provider.
#[async_trait]
pub trait Adapter: Send + Sync + 'static {
    /// Sends one message, once. It is cut off at the sink's time limit, and then its outcome is unknown; the same
    /// message may come again with the same event id. Texts of outcomes are stored with the message: leave payloads,
    /// recipients and tokens out.
    async fn send(&self, outbound: &Outbound<'_>) -> Outcome;

    /// Whether the provider answers; the error text is for the operator. It must not send anything to anybody.
    async fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

#[async_trait]
impl<A: Adapter + ?Sized> Adapter for Arc<A> {
    async fn send(&self, outbound: &Outbound<'_>) -> Outcome {
        (**self).send(outbound).await
    }

    async fn ready(&self) -> Result<(), String> {
        (**self).ready().await
    }
}

/// A message for an adapter.
#[non_exhaustive]
pub struct Outbound<'a> {
    /// The provider's name.
    pub provider: &'a str,
    /// Who gets it; not empty, without control characters.
    pub recipient: &'a str,
    /// What to send.
    pub payload: Normalised,
    /// What the message is called elsewhere.
    pub correlation: Correlation<'a>,
}

/// What a message is called elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Correlation<'a> {
    /// The event id, the same on every attempt.
    pub event_id: Uuid,
    /// The producer's correlation id.
    pub correlation_id: Option<&'a str>,
    /// The producer's id of the message in its channel.
    pub channel_message_id: Option<&'a str>,
    /// The tenant.
    pub tenant: Option<Uuid>,
    /// Which attempt this is, from 1.
    pub attempt: i32,
}

impl<'a> Outbound<'a> {
    /// Makes it of a message, or says what is wrong with the message.
    pub fn of(message: &'a ClaimedMessage) -> Result<Self, String> {
        let header = |name: &str| message.headers.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let provider = header(PROVIDER).ok_or("it has no header \"provider\"")?;
        let recipient = header(RECIPIENT).ok_or("it has no header \"recipient\"")?;
        if recipient.len() > LONGEST_RECIPIENT || recipient.chars().any(char::is_control) || recipient.trim().is_empty()
        {
            return Err(format!(
                "its header \"recipient\" is blank, longer than {LONGEST_RECIPIENT} bytes or has control characters"
            ));
        }
        let correlation = Correlation {
            event_id: message.id,
            correlation_id: header(CORRELATION_ID),
            channel_message_id: header(CHANNEL_MESSAGE_ID),
            tenant: message.tenant_id,
            attempt: message.attempts,
        };
        Ok(Self { provider, recipient, payload: Normalised::of(&message.payload)?, correlation })
    }
}

/// Recipients are people, and payloads are theirs: neither is printed.
impl fmt::Debug for Outbound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, correlation, .. } = self;
        f.debug_struct("Outbound")
            .field("provider", provider)
            .field("event_id", &correlation.event_id)
            .finish_non_exhaustive()
    }
}

/// One of the producer's ids as it may be shown to others: only what looks like an id.
pub(super) fn plain_id(id: Option<&str>) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    id.filter(|id| id.len() <= 128 && id.chars().all(plain))
}
