//! What an answer, or its absence, means for a message.
//!
//! | answer | outcome | why |
//! |---|---|---|
//! | a message id | accepted | |
//! | INVALID_ARGUMENT for a message that was alone in its request | reject | this very message is not wanted, for instance by the schema of the topic |
//! | INVALID_ARGUMENT for a request of several | none yet | one of them may be meant; each is sent again alone |
//! | NOT_FOUND | retry | the topic is not there; an operator makes it |
//! | PERMISSION_DENIED, UNAUTHENTICATED, no token | retry | an operator mends the access |
//! | RESOURCE_EXHAUSTED, UNAVAILABLE, ABORTED, INTERNAL | retry | the service says that it did not take it, and will later |
//! | FAILED_PRECONDITION, OUT_OF_RANGE, ALREADY_EXISTS, UNIMPLEMENTED | retry | a state of the topic or the endpoint, not of the message: a disabled key, a storage policy, a wrong address |
//! | DEADLINE_EXCEEDED, CANCELLED, UNKNOWN, DATA_LOSS and codes that are new | unknown | it may have arrived |
//! | no answer in time, or the connection broke after it was made | unknown | it may have arrived |
//! | no connection, TLS not trusted | retry | nothing was sent |
//! | the message before it on its ordering key has to come again | busy | nothing was sent |
//! | limits of Pub/Sub, or a name of a topic from data that cannot be | unsendable | nothing was sent |
//!
//! No text of the service is passed on: it may repeat what is in the message.

use std::time::Duration;

use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::error::PublishError;
use postrider_core::Outcome;

/// When a message comes again that was not sent for no fault of its own.
const AGAIN: Duration = Duration::from_millis(200);

/// What a publish of one message ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is settled.
    Is(Outcome),
    /// Its request was refused for one of its messages, maybe another.
    Refused,
}

/// What the publisher said of a message.
pub(super) fn answer(result: Result<String, PublishError>) -> Answer {
    let outcome = match result {
        Ok(_) => Outcome::Accepted,
        Err(PublishError::Rpc(error)) if code(&error) == Some(Code::InvalidArgument) => return Answer::Refused,
        Err(PublishError::Rpc(error)) => of_error(&error),
        Err(PublishError::OrderingKeyPaused) => waits(),
        // The publisher's task is gone, or the service answered for fewer messages than it got.
        Err(_) => Outcome::Unknown("the publisher ended before there was an answer".into()),
    };
    Answer::Is(outcome)
}

/// What a refusal means for a message that was alone in its request.
pub(super) fn refused_alone() -> Outcome {
    Outcome::Reject("Pub/Sub refused it for what is in it (INVALID_ARGUMENT); check the schema of the topic".into())
}

/// A message behind another on its ordering key.
pub(super) fn waits() -> Outcome {
    busy("it waits for the message before it on its ordering key")
}

/// A message for which there was no time.
pub(super) fn no_time() -> Outcome {
    busy("nothing was sent: there was no room for its request in time")
}

fn busy(why: &str) -> Outcome {
    Outcome::Busy { after: AGAIN, why: why.into() }
}

/// A message without an answer at the end of all patience.
pub(super) fn no_answer() -> Outcome {
    Outcome::Unknown("Pub/Sub did not answer in time".into())
}

/// The code of the service, if it answered.
pub(super) fn code(error: &Error) -> Option<Code> {
    error.status().map(|status| status.code)
}

/// What a failed request means for a message in it.
pub(super) fn of_error(error: &Error) -> Outcome {
    if let Some(code) = code(error) {
        return of_code(code);
    }
    match () {
        () if error.is_authentication() => Outcome::retry(NO_TOKEN),
        () if error.is_connect() || error.is_io() => Outcome::retry("nothing was sent: no connection"),
        () if error.is_timeout() => no_answer(),
        () if error.is_serialization() || error.is_binding() => {
            Outcome::Unsendable("it cannot be written as a request".into())
        }
        () => Outcome::Unknown("the connection broke before there was an answer".into()),
    }
}

/// There are no credentials, or they give no token.
pub(super) const NO_TOKEN: &str = "nothing was sent: no access token; check the credentials";

fn of_code(code: Code) -> Outcome {
    let said = format!("Pub/Sub answered {}", code.name());
    match code {
        Code::InvalidArgument => refused_alone(),
        Code::NotFound => Outcome::retry(format!("{said}; make the topic, or put another into the route")),
        Code::PermissionDenied | Code::Unauthenticated => {
            Outcome::retry(format!("{said}; give the account the role Pub/Sub Publisher on the topic"))
        }
        Code::ResourceExhausted
        | Code::Unavailable
        | Code::Aborted
        | Code::Internal
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::AlreadyExists => Outcome::retry(said),
        Code::Unimplemented => Outcome::retry(format!("{said}; check the endpoint")),
        _ => Outcome::Unknown(said),
    }
}

/// Whether an error says that the service cannot be reached.
pub(super) fn is_away(error: &Error) -> bool {
    match code(error) {
        Some(code) => code == Code::Unavailable,
        None => !error.is_authentication() && !error.is_serialization(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use google_cloud_gax::error::rpc::Status;
    use std::sync::Arc;

    #[test]
    fn every_code_has_its_outcome() {
        for (code, kind) in [
            (Code::Ok, "unknown"),
            (Code::Cancelled, "unknown"),
            (Code::Unknown, "unknown"),
            (Code::InvalidArgument, "reject"),
            (Code::DeadlineExceeded, "unknown"),
            (Code::NotFound, "retry"),
            (Code::AlreadyExists, "retry"),
            (Code::PermissionDenied, "retry"),
            (Code::ResourceExhausted, "retry"),
            (Code::FailedPrecondition, "retry"),
            (Code::Aborted, "retry"),
            (Code::OutOfRange, "retry"),
            (Code::Unimplemented, "retry"),
            (Code::Internal, "retry"),
            (Code::Unavailable, "retry"),
            (Code::DataLoss, "unknown"),
            (Code::Unauthenticated, "retry"),
        ] {
            let status = Status::default().set_code(code).set_message("canary");
            let outcome = of_error(&Error::service(status));
            assert_eq!(outcome.kind(), kind, "{code:?}");
            assert!(!format!("{outcome:?}").contains("canary"), "{outcome:?}");
        }
    }

    #[test]
    fn what_was_surely_not_sent_is_retried_and_the_rest_is_unknown() {
        for (error, kind) in [
            (Error::connect("canary"), "retry"),
            (Error::io("canary"), "retry"),
            (Error::timeout("canary"), "unknown"),
            (Error::transport(Default::default(), "canary"), "unknown"),
            (Error::ser("canary"), "unsendable"),
            (Error::deser("canary"), "unknown"),
        ] {
            let outcome = of_error(&error);
            assert_eq!(outcome.kind(), kind, "{error:?}");
            assert!(!format!("{outcome:?}").contains("canary"), "{outcome:?}");
        }
    }

    #[test]
    fn a_refusal_is_none_of_a_message_until_it_was_alone() {
        let error = Error::service(Status::default().set_code(Code::InvalidArgument));
        assert_eq!(answer(Err(PublishError::Rpc(Arc::new(error)))), Answer::Refused);
        let kinds = [Ok("1".into()), Err(PublishError::OrderingKeyPaused), Err(PublishError::Shutdown)].map(answer);
        let kinds = kinds.map(|answer| match answer {
            Answer::Is(outcome) => outcome.kind(),
            Answer::Refused => "refused",
        });
        assert_eq!(kinds, ["accepted", "busy", "unknown"]);
    }
}
