//! What an error of the service means for messages.
//!
//! | what happened | outcome | why |
//! |---|---|---|
//! | in the list of the successful | accepted | |
//! | in the list of the failed, the sender's fault, with a code that is about the message itself | reject | it will never be taken |
//! | in the list of the failed, otherwise: throttled, keys (KMS), permissions, a code that is not known | retry | time or an operator can mend it |
//! | in neither list | unknown | |
//! | the request was refused because of what is in it | reject, once it was alone in a request | |
//! | the request was refused for another reason: no such queue or topic, no access, throttled, 503 | retry | |
//! | a parameter was refused, and the text speaks of the queue or topic | retry | the destination is the operator's |
//! | no connection, no credentials, no region, no address of the queue in time | retry | nothing was sent |
//! | any other 5xx, or an answer that cannot be read | unknown | it may have been taken |
//! | no answer within `timeout`, or the connection broke | unknown | it may have been taken |
//! | too large, empty, or a destination that is no name | unsendable | nothing was sent |
//!
//! No text of the service is passed on, only its codes: a text is looked at, and forgotten.

use std::error::Error;
use std::io;

use postrider_core::Outcome;

use super::sdk::config::http::HttpResponse;
use super::sdk::error::{ProvideErrorMetadata, SdkError};

/// Why a whole request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The service refused it because of some message in it.
    Refused(String),
    /// Nothing was taken.
    Later(String),
    /// Nobody knows.
    Unknown(String),
}

/// Codes which say that a message itself is not wanted.
const REFUSED: [&str; 3] = ["InvalidMessageContents", "MessageTooLong", "BatchRequestTooLong"];
/// Codes which say it, unless their text speaks of the destination.
const PERHAPS_REFUSED: [&str; 3] = ["InvalidParameterValue", "InvalidParameter", "InvalidAttributeValue"];
/// Words for the destination, in such a text.
const DESTINATION: [&str; 4] = ["topic", "queue", "fifo", "targetarn"];

const NOT_READ: &str = "the service's answer cannot be read";

impl Failure {
    /// What a status, code and text of the service mean.
    pub(crate) fn of_service(status: u16, code: Option<&str>, text: Option<&str>) -> Self {
        let code = code.unwrap_or("none");
        let why = || format!("the service answered {status} with code {}", printable(code));
        match status {
            // It said that it did something, but not what.
            200..=299 => Self::Unknown(NOT_READ.into()),
            503 => Self::Later(why()),
            500..=599 => Self::Unknown(why()),
            _ if is_about_the_message(code, text) => Self::Refused(why()),
            _ => Self::Later(why() + advice(short(code))),
        }
    }

    /// What the absence of an answer means. `timed_out` is about connecting only.
    pub(crate) fn of_transport(error: &(dyn Error + 'static), timed_out: bool) -> Self {
        if timed_out {
            return Self::Later("nothing was sent: no connection within connect_timeout".into());
        }
        let mut text = String::new();
        for cause in std::iter::successors(Some(error), |error| (*error).source()) {
            if let Some(error) = cause.downcast_ref::<io::Error>()
                && never_connected(error.kind())
            {
                return Self::Later(format!("nothing was sent: no connection: {}", error.kind()));
            }
            text += &cause.to_string().to_lowercase();
        }
        // These texts are only looked at: they may name files and accounts.
        for (sign, why) in [
            ("credential", "there are no credentials that work"),
            ("region", "there is no region; set aws.region"),
            ("dns error", "the service's name cannot be found"),
            ("certificate", "the service's certificate is not trusted"),
        ] {
            if text.contains(sign) {
                return Self::Later(format!("nothing was sent: {why}"));
            }
        }
        Self::Unknown("the connection broke before there was an answer".into())
    }

    /// The outcome of each message in the request; refused for good is only what was `alone` in it.
    pub(crate) fn outcome(&self, alone: bool) -> Outcome {
        match self {
            Self::Refused(why) if alone => Outcome::Reject(why.clone()),
            Self::Refused(why) | Self::Later(why) => Outcome::retry(why.clone()),
            Self::Unknown(why) => Outcome::Unknown(why.clone()),
        }
    }

    /// The same of a request that was never made.
    fn if_unsure_later(self) -> Self {
        match self {
            Self::Unknown(_) => Self::Later("nothing was sent: the request cannot be made; check the settings".into()),
            sure => sure,
        }
    }

    /// What it says.
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Refused(why) | Self::Later(why) | Self::Unknown(why) => why,
        }
    }
}

/// What a failed request means.
pub(crate) fn of_sdk<E: ProvideErrorMetadata + Error + 'static>(error: &SdkError<E, HttpResponse>) -> Failure {
    match error {
        SdkError::ServiceError(answer) => {
            let meta = answer.err().meta();
            Failure::of_service(answer.raw().status().as_u16(), meta.code(), meta.message())
        }
        SdkError::ResponseError(_) => Failure::Unknown(NOT_READ.into()),
        SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
            Some(error) => Failure::of_transport(error, failure.is_timeout()),
            None => Failure::Unknown("the connection broke before there was an answer".into()),
        },
        SdkError::ConstructionFailure(_) => Failure::of_transport(error, false).if_unsure_later(),
        _ => Failure::Unknown("the service did not answer in time".into()),
    }
}

/// Whether the service only says that it may not tell: it answers then.
pub(crate) fn is_forbidden<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    matches!(error, SdkError::ServiceError(answer) if answer.err().meta().code().is_some_and(|code| {
        code.contains("AccessDenied") || code.contains("AuthorizationError")
    }))
}

/// What an entry in the list of the failed means. Only codes that are known to be about the message kill it.
pub(crate) fn of_entry(code: &str, text: Option<&str>, sender_fault: bool) -> Outcome {
    let why = format!("the service refused it with code {}", printable(code));
    match sender_fault && is_about_the_message(code, text) {
        true => Outcome::Reject(why),
        false => Outcome::retry(why + advice(short(code))),
    }
}

/// Whether it is the message that the service does not want, and nothing that an operator could mend.
fn is_about_the_message(code: &str, text: Option<&str>) -> bool {
    let text = text.unwrap_or_default().to_ascii_lowercase();
    let about_destination = || DESTINATION.iter().any(|word| text.contains(word));
    REFUSED.contains(&short(code)) || (PERHAPS_REFUSED.contains(&short(code)) && !about_destination())
}

/// Some services write a family before the code.
fn short(code: &str) -> &str {
    code.rsplit('.').next().unwrap_or(code)
}

fn never_connected(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable)
}

fn advice(code: &str) -> &'static str {
    match code {
        "NonExistentQueue" | "QueueDoesNotExist" => "; create the queue, or correct the destination",
        "NotFound" | "NotFoundException" => "; create the topic, or correct the destination",
        code if code.contains("AccessDenied") || code.contains("Authorization") => "; allow the role to send there",
        code if code.contains("Token") || code.contains("Signature") || code.contains("AccessKey") => {
            "; check the credentials"
        }
        _ => "",
    }
}

/// Codes are words; what is not is cut, because it could be anything.
fn printable(code: &str) -> String {
    code.chars().filter(|c| c.is_ascii_alphanumeric() || "._-:".contains(*c)).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_requests_holds() {
        for (status, code, together, alone) in [
            (400, Some("AWS.SimpleQueueService.NonExistentQueue"), "retry", "retry"),
            (400, Some("QueueDoesNotExist"), "retry", "retry"),
            (404, Some("NotFound"), "retry", "retry"),
            (403, Some("AccessDenied"), "retry", "retry"),
            (403, Some("InvalidClientTokenId"), "retry", "retry"),
            (403, Some("ExpiredToken"), "retry", "retry"),
            (400, Some("ThrottlingException"), "retry", "retry"),
            (400, Some("AWS.SimpleQueueService.BatchRequestTooLong"), "retry", "reject"),
            (400, Some("InvalidMessageContents"), "retry", "reject"),
            (400, Some("InvalidParameterValue"), "retry", "reject"),
            (503, Some("ServiceUnavailable"), "retry", "retry"),
            (500, Some("InternalError"), "unknown", "unknown"),
            (502, None, "unknown", "unknown"),
            (504, None, "unknown", "unknown"),
            (200, None, "unknown", "unknown"),
        ] {
            let failure = Failure::of_service(status, code, None);
            assert_eq!((failure.outcome(false).kind(), failure.outcome(true).kind()), (together, alone), "{code:?}");
        }
    }

    #[test]
    fn the_table_of_entries_holds() {
        for (code, fault, expected) in [
            ("InvalidMessageContents", true, "reject"),
            ("InvalidMessageContents", false, "retry"),
            ("InvalidParameterValue", true, "reject"),
            ("SomethingNew", true, "retry"),
            ("KmsThrottled", true, "retry"),
            ("KMSAccessDeniedException", true, "retry"),
            ("AccessDenied", true, "retry"),
            ("RequestThrottled", true, "retry"),
            ("InternalError", false, "retry"),
            ("ServiceUnavailable", false, "retry"),
        ] {
            assert_eq!(of_entry(code, None, fault).kind(), expected, "{code}");
        }
        let text = Some("Invalid parameter: TopicArn");
        assert_eq!(of_entry("InvalidParameter", text, true).kind(), "retry");
        assert_eq!(Failure::of_service(400, Some("InvalidParameter"), text).outcome(true).kind(), "retry");
    }

    #[test]
    fn without_a_connection_nothing_was_sent() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(Failure::of_transport(&refused, false).outcome(true).kind(), "retry");
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(Failure::of_transport(&reset, false).outcome(true).kind(), "unknown");
        assert_eq!(Failure::of_transport(&reset, true).outcome(true).kind(), "retry");
        let none = io::Error::other("the credential provider was not enabled: canary");
        let failure = Failure::of_transport(&none, false);
        assert!(failure.outcome(true).kind() == "retry" && !failure.why().contains("canary"));
    }
}
