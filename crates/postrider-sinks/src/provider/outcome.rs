//! What kinds of answers providers give, and what each means for a message.
//!
//! | the answer says | outcome |
//! |---|---|
//! | it is sent | accepted |
//! | too many messages, or too fast | retry, not before `Retry-After` |
//! | the provider has a problem | retry |
//! | the provider had a problem, and may have sent it all the same | unknown |
//! | the token, the account or the configuration is wrong | retry: no backlog dies while the operator mends it |
//! | this very message or recipient is not wanted | reject |
//! | nothing we know, with a status | see [`by_status`] |
//!
//! Each adapter has one table from its provider's errors to these kinds. No text of an answer is passed on, because it
//! may hold a part of the message; an error code is.

use std::time::Duration;

use postrider_core::Outcome;
use reqwest::StatusCode;

use crate::http::outcome::describe;

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is sent.
    Sent,
    /// Too many messages, or too fast.
    Limited,
    /// The provider has a problem.
    Transient,
    /// The same, and it may have been sent.
    Doubtful,
    /// Something that the operator must mend, whatever the message.
    Account,
    /// This message will never be sent.
    Refused,
}

/// An answer that was understood.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    pub verdict: Verdict,
    /// Who said what, in our own words.
    pub what: String,
    /// How long the provider asks to wait.
    pub after: Option<Duration>,
}

impl Judged {
    pub(super) fn new(verdict: Verdict, what: impl Into<String>) -> Self {
        Self { verdict, what: what.into(), after: None }
    }

    pub(super) fn after(mut self, after: Option<Duration>) -> Self {
        self.after = after;
        self
    }

    /// What becomes of the message.
    pub(super) fn outcome(self) -> Outcome {
        let Self { verdict, what, after } = self;
        match verdict {
            Verdict::Sent => Outcome::Accepted,
            Verdict::Limited | Verdict::Transient | Verdict::Account => Outcome::Retry { after, why: what },
            Verdict::Doubtful => Outcome::Unknown(what),
            Verdict::Refused => Outcome::Reject(what),
        }
    }

    /// What the answer to a harmless question says of the provider: only a wrong account or a limit makes it unready.
    /// Somebody in between may refuse the question and let messages through all the same.
    pub(super) fn ready(self) -> Result<(), String> {
        match self.verdict {
            Verdict::Account | Verdict::Limited => Err(self.what),
            Verdict::Sent | Verdict::Transient | Verdict::Doubtful | Verdict::Refused => Ok(()),
        }
    }
}

/// What a status means if the answer is not in the provider's format: somebody in between gave it, or it was cut off.
pub(super) fn by_status(name: &str, status: StatusCode, after: Option<Duration>) -> Judged {
    let said = format!("{name} answered {}", describe(status));
    match status.as_u16() {
        200..=299 => Judged::new(Verdict::Doubtful, format!("{said}, but not in its format; it may have arrived")),
        413 => Judged::new(Verdict::Refused, said),
        408 | 429 | 500..=599 => Judged::new(Verdict::Transient, said).after(after),
        300..=399 => Judged::new(Verdict::Transient, format!("{said}; redirects are not followed, check the endpoint")),
        _ => Judged::new(Verdict::Transient, format!("{said}, not in its format; check the endpoint")),
    }
}
