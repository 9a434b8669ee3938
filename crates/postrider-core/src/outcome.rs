//! What a sink said of one message.

use std::time::Duration;

/// What a sink said of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The destination has the message.
    Accepted,
    /// The destination had the message already.
    Duplicate,
    /// The destination does not have the message; try again, not before `after` if it is given.
    Retry {
        /// The earliest next attempt, as the destination asked for it.
        after: Option<Duration>,
        /// What went wrong.
        why: String,
    },
    /// The destination will never take the message; it becomes dead at once.
    Reject(String),
    /// This message cannot be sent to this sink. Nothing was sent; it becomes dead at once, and it says nothing of the
    /// destination.
    Unsendable(String),
    /// Nothing was sent, because the destination has no room or is left alone for a while; or it was the trial of a
    /// destination that is known to be down. The message is given back with its attempt and comes again after the
    /// wait, so this costs it nothing however often it happens.
    Busy {
        /// When to come again.
        after: Duration,
        /// What the destination waits for.
        why: String,
    },
    /// Nobody knows whether the destination has the message; it is tried again.
    Unknown(String),
}

impl Outcome {
    /// A retry without a wish for its time.
    pub fn retry(why: impl Into<String>) -> Self {
        Self::Retry { after: None, why: why.into() }
    }

    /// Whether the destination has the message.
    pub fn is_delivered(&self) -> bool {
        matches!(self, Self::Accepted | Self::Duplicate)
    }

    /// One word, for metrics and logs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Retry { .. } => "retry",
            Self::Reject(_) => "reject",
            Self::Unsendable(_) => "unsendable",
            Self::Busy { .. } => "busy",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Why a callback could not publish a message.
///
/// Any error converts into a retry; use the constructors to say more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct PublishError {
    policy: Policy,
    why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Retry(Option<Duration>),
    Reject,
    Unsendable,
    Unknown,
}

impl PublishError {
    /// Try again by the retry policy.
    pub fn retry(why: impl Into<String>) -> Self {
        Self { policy: Policy::Retry(None), why: why.into() }
    }

    /// Try again, but not before `after`.
    pub fn retry_after(after: Duration, why: impl Into<String>) -> Self {
        Self { policy: Policy::Retry(Some(after)), why: why.into() }
    }

    /// Never try again, because the destination refused it: the message becomes dead.
    pub fn reject(why: impl Into<String>) -> Self {
        Self { policy: Policy::Reject, why: why.into() }
    }

    /// Never try again, because it cannot even be sent: the message becomes dead. Other than a reject this is no sign
    /// that the destination works.
    pub fn unsendable(why: impl Into<String>) -> Self {
        Self { policy: Policy::Unsendable, why: why.into() }
    }

    /// It may have arrived or not; try again by the retry policy.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self { policy: Policy::Unknown, why: why.into() }
    }
}

impl From<PublishError> for Outcome {
    fn from(error: PublishError) -> Self {
        match error.policy {
            Policy::Retry(after) => Self::Retry { after, why: error.why },
            Policy::Reject => Self::Reject(error.why),
            Policy::Unsendable => Self::Unsendable(error.why),
            Policy::Unknown => Self::Unknown(error.why),
        }
    }
}

impl From<String> for PublishError {
    fn from(why: String) -> Self {
        Self::retry(why)
    }
}

impl From<&str> for PublishError {
    fn from(why: &str) -> Self {
        Self::retry(why)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for PublishError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::retry(error.to_string())
    }
}

/// The longest error text that is kept, in bytes.
pub const MAX_ERROR_LENGTH: usize = 2_048;

/// Makes an error text fit for the `last_error` column: no control characters (PostgreSQL refuses NUL),
/// and cut at a character boundary.
pub fn error_text(why: &str) -> String {
    let mut text: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() > MAX_ERROR_LENGTH {
        text.truncate(text.floor_char_boundary(MAX_ERROR_LENGTH - '…'.len_utf8()));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_is_cut_on_a_character_boundary_and_has_no_controls() {
        let text = error_text(&"ä\0".repeat(2_000));
        assert!(text.len() <= MAX_ERROR_LENGTH && text.ends_with('…'));
        assert!(!text.chars().any(char::is_control));
        assert_eq!(error_text("plain"), "plain");
    }

    #[test]
    fn a_callback_error_says_what_happens_next() {
        let after = Duration::from_secs(7);
        assert_eq!(Outcome::from(PublishError::from("no")), Outcome::retry("no"));
        assert_eq!(
            Outcome::from(PublishError::retry_after(after, "busy")),
            Outcome::Retry { after: Some(after), why: "busy".into() }
        );
        assert_eq!(Outcome::from(PublishError::reject("bad")), Outcome::Reject("bad".into()));
        assert_eq!(Outcome::from(PublishError::unsendable("no key")), Outcome::Unsendable("no key".into()));
        assert_eq!(Outcome::from(PublishError::unknown("?")), Outcome::Unknown("?".into()));
    }
}
