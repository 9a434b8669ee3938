//! What an answer of the broker, or its absence, means for a message.
//!
//! | what happened | outcome | why |
//! |---|---|---|
//! | confirmed | accepted | |
//! | confirmed, and returned | retry | no queue is bound for it, which the operator can mend |
//! | nack | retry | a queue is full or failed |
//! | memory or disk alarm (`connection.blocked`) before anything was sent | busy | costs no attempt |
//! | no connection, refused user, missing virtual host or exchange when a channel is opened | retry | nothing was sent |
//! | routing key or header name too long, headers over a frame, body over `max_message_size` | unsendable | nothing was sent |
//! | channel closed with 406 because of this very message | reject | the broker will never take it |
//! | channel closed with 403, 404 or another code because of this very message | retry | the operator can mend it |
//! | channel closed while others were on it | unknown | some may have been taken before |
//! | connection lost, or no confirm within `timeout` | unknown | it may have arrived |
//!
//! After 406 the messages of the call that were not confirmed are sent again one by one, each on a channel of its own if
//! need be, for as long as there is time; the others stay unknown. No text of the broker is passed on, only codes.

use std::time::Duration;

use lapin::message::BasicReturnMessage;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::{Confirmation, Error, ErrorKind};
use postrider_core::Outcome;

/// When to look again whether the broker takes messages.
const BLOCKED_WAIT: Duration = Duration::from_secs(1);
const NO_WAY: &str =
    "the broker has no queue for this routing key; bind one to the exchange, or correct the destination";

/// Why nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unsent {
    /// There is no connection or no channel.
    Down(String),
    /// The broker takes no messages for now.
    Blocked,
}

impl Unsent {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Down(why) => Outcome::retry(format!("nothing was sent: {why}")),
            Self::Blocked => Outcome::Busy { after: BLOCKED_WAIT, why: self.why() },
        }
    }

    pub(super) fn why(&self) -> String {
        match self {
            Self::Down(why) => why.clone(),
            Self::Blocked => "the broker takes no messages for now: it has a memory or disk alarm".into(),
        }
    }
}

/// What became of a message that was given to a channel.
#[derive(Debug)]
pub(super) enum Answer {
    /// The broker took it. With this came the id of a message that no queue was there for, which may be another one.
    Taken(Option<String>),
    /// The broker did not take it; the same came with it.
    Nacked(Option<String>),
    /// Its headers do not fit into a frame, so it was not sent.
    Oversized,
    /// The channel was closed before the message was on it.
    NotSent(Error),
    /// The channel or the connection was closed first.
    Failed(Error),
    /// Nothing came in time.
    Silent,
}

impl From<lapin::Result<Confirmation>> for Answer {
    fn from(done: lapin::Result<Confirmation>) -> Self {
        let id = |returned: Option<BasicReturnMessage>| {
            returned.and_then(|message| message.properties.message_id().as_ref().map(|id| id.as_str().to_owned()))
        };
        match done {
            Ok(Confirmation::Ack(returned)) => Self::Taken(id(returned)),
            Ok(Confirmation::Nack(returned)) => Self::Nacked(id(returned)),
            // Every channel is asked to confirm.
            Ok(Confirmation::NotRequested) => Self::Silent,
            Err(error) => Self::Failed(error),
        }
    }
}

impl Answer {
    /// Whether the broker has answered for the message itself.
    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self, Self::Taken(_) | Self::Nacked(_))
    }

    /// The id of a message that came back, if this answer brought one.
    pub(super) fn returned(&self) -> Option<String> {
        match self {
            Self::Taken(id) | Self::Nacked(id) => id.clone(),
            _ => None,
        }
    }

    /// Whether the broker closed the channel because it does not take some message.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed(error) | Self::NotSent(error)
            if soft(error).is_some_and(|code| code == AMQPSoftError::PRECONDITIONFAILED.get_id()))
    }

    /// The outcome of a message. It was `returned` if no queue was there for it, and `alone` if nothing else was on the
    /// channel.
    pub(super) fn outcome(&self, returned: bool, alone: bool) -> Outcome {
        match self {
            Self::Taken(_) | Self::Nacked(_) if returned => Outcome::retry(NO_WAY),
            Self::Taken(_) => Outcome::Accepted,
            Self::Nacked(_) => Outcome::retry("the broker refused it for now (nack): a queue is full or has failed"),
            Self::Oversized => {
                Outcome::Unsendable("its headers are larger than a frame of the broker (frame_max)".into())
            }
            Self::NotSent(_) => Outcome::retry("nothing was sent: the channel was closed"),
            Self::Failed(error) => failed(error, alone),
            Self::Silent => Outcome::Unknown("the broker did not confirm in time".into()),
        }
    }
}

fn failed(error: &Error, alone: bool) -> Outcome {
    let Some(code) = soft(error) else {
        return Outcome::Unknown("the connection broke before the broker confirmed".into());
    };
    let why = format!("the broker closed the channel with code {code}{}", advice(code));
    match alone {
        true if code == AMQPSoftError::PRECONDITIONFAILED.get_id() => Outcome::Reject(why),
        true => Outcome::retry(why),
        false => Outcome::Unknown(why),
    }
}

/// The code of an error that closed the channel but not the connection.
fn soft(error: &Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) if matches!(error.kind(), AMQPErrorKind::Soft(_)) => Some(error.get_id()),
        _ => None,
    }
}

fn advice(code: u16) -> &'static str {
    match code {
        403 => " (access refused); let the user write to the exchange",
        404 => " (not found); declare the exchange, or correct its name",
        406 => " (precondition failed): it is larger than the broker's max_message_size",
        _ => "",
    }
}

/// Why there is no connection.
pub(super) fn not_connected(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(error) => match error.get_id() {
            403 => "the broker refused user and password, or the virtual host (403)".into(),
            530 => "the broker does not let this user use the virtual host (530)".into(),
            code => format!("the broker closed the connection with code {code}"),
        },
        ErrorKind::IOError(error) => match error.kind() {
            // The TLS library wraps its errors like this; they tell of certificates and name no secret.
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::Other => {
                format!("no connection: {}", error.to_string().chars().take(200).collect::<String>())
            }
            kind => format!("no connection: {kind}"),
        },
        ErrorKind::MissingHeartbeatError => "no connection: no sign of life from the broker".into(),
        _ => "no connection: the broker closed it".into(),
    }
}

/// Why there is no channel.
pub(super) fn not_opened(error: &Error) -> String {
    match (soft(error), error.kind()) {
        (Some(code), _) => format!("the broker refused the channel with code {code}{}", advice(code)),
        (None, ErrorKind::ChannelsLimitReached) => "the broker allows no more channels; lower `channels`".into(),
        (None, _) => not_connected(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapin::protocol::{AMQPError, AMQPHardError};

    fn closed(kind: impl Into<AMQPErrorKind>) -> Error {
        ErrorKind::ProtocolError(AMQPError::new(kind.into(), "canary".into())).into()
    }

    #[test]
    fn r51_r52_the_table_holds() {
        use Answer::{Failed, Nacked, NotSent, Oversized, Silent, Taken};
        let lost = || Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let refused = || closed(AMQPSoftError::ACCESSREFUSED);
        let missing = || closed(AMQPSoftError::NOTFOUND);
        let large = || closed(AMQPSoftError::PRECONDITIONFAILED);
        for (answer, returned, alone, expected) in [
            (Taken(None), false, false, "accepted"),
            (Taken(Some("another".into())), false, false, "accepted"),
            (Taken(None), true, false, "retry"),
            (Nacked(None), false, false, "retry"),
            (Answer::from(Ok(Confirmation::NotRequested)), false, true, "unknown"),
            (Oversized, false, false, "unsendable"),
            (NotSent(missing()), false, false, "retry"),
            (Failed(missing()), false, true, "retry"),
            (Failed(missing()), false, false, "unknown"),
            (Failed(refused()), false, true, "retry"),
            (Failed(large()), false, true, "reject"),
            (Failed(large()), false, false, "unknown"),
            (Failed(lost()), false, true, "unknown"),
            (Failed(closed(AMQPHardError::CONNECTIONFORCED)), false, true, "unknown"),
            (Silent, false, true, "unknown"),
        ] {
            let outcome = answer.outcome(returned, alone);
            assert_eq!(outcome.kind(), expected, "{answer:?}");
            assert!(!format!("{outcome:?}").contains("canary"), "the broker's text is not passed on: {outcome:?}");
        }
        assert!(Failed(large()).is_refusal() && !Failed(missing()).is_refusal() && !Failed(lost()).is_refusal());
        assert_eq!(Unsent::Down("x".into()).outcome().kind(), "retry");
        assert_eq!(Unsent::Blocked.outcome().kind(), "busy");
    }

    #[test]
    fn what_a_connection_fails_of_is_told_without_the_brokers_words() {
        assert!(not_connected(&closed(AMQPSoftError::ACCESSREFUSED)).contains("user and password"));
        assert!(not_connected(&closed(AMQPHardError::NOTALLOWED)).contains("530"));
        assert!(not_opened(&closed(AMQPSoftError::NOTFOUND)).contains("404"));
    }
}
