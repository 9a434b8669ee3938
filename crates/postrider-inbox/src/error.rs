//! What goes wrong, and what follows from it. No error says that an event counts as processed; after one of a commit or of
//! `check_and_mark_processed` that got no answer, it may count nevertheless.

use std::error::Error;

use uuid::Uuid;

/// An inbox could not answer. Do not acknowledge the message; the broker is to bring it again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The claim ran out and another delivery took it before the commit. What the handler did may be done twice.
    #[error(
        "the claim on event {event} was lost before it was committed; its handler took longer than the claim lasts"
    )]
    Lost {
        /// The event.
        event: Uuid,
    },
    /// Another delivery of the same event is being handled.
    #[error("event {event} is being handled by another delivery; let the broker bring it again")]
    InProgress {
        /// The event.
        event: Uuid,
    },
    /// A deadlock or serialisation failure: roll the transaction back and let the broker bring the message again.
    #[error(
        "the database could not serialise this transaction; roll it back and let the broker bring the message again"
    )]
    Conflict(#[source] Box<dyn Error + Send + Sync>),
    /// The inbox cannot be reached, or did not answer in time.
    #[error("the inbox cannot be reached")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The inbox answered with an error.
    #[error("the inbox failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// A setting is not acceptable.
    #[error("{0}")]
    Config(String),
}

impl InboxError {
    /// Whether it is worth trying again without changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::InProgress { .. } | Self::Conflict(_) | Self::Unavailable(_))
    }
}
