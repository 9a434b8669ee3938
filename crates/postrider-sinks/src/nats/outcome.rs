//! What an answer, or its absence, means for a message.
//!
//! | answer | outcome | why |
//! |---|---|---|
//! | the stream's acknowledgement | accepted | it is stored |
//! | the same, marked as a duplicate | duplicate | the stream has a message of this id already |
//! | no responders | retry | no stream takes this subject, or JetStream is off: the operator's to mend |
//! | the message or its headers are larger than the stream takes (10054, 10097) | reject | it will be the next time |
//! | larger than the server's `max_payload` | unsendable | seen before it is sent |
//! | another stream than expected (10060) | retry | the operator's to mend |
//! | the stream is full (10077), sealed, offline; resources of account or server are exhausted; any other code | retry | it may be mended or pass |
//! | not allowed to publish on the subject | retry | the operator's to mend |
//! | no connection, wrong credentials, TLS not trusted | retry | nothing was sent |
//! | no answer in time, or the connection broke before it | unknown | it may be stored |
//! | not allowed to listen for the answer | unknown | it may be stored, and the operator must mend it |
//! | an answer that no stream gives | unknown | somebody else listens on the subject |
//!
//! No text of the server is passed on, only its error code.

use std::error::Error;

use async_nats::jetstream;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::publish::PublishAck;
use async_nats::{ConnectError, ConnectErrorKind};
use postrider_core::Outcome;

/// What became of a message that was sent.
pub(super) fn of_answer(answer: Result<PublishAck, PublishError>, expected: Option<&str>) -> Outcome {
    let error = match answer {
        Ok(ack) if expected.is_some_and(|stream| stream != ack.stream) => {
            return Outcome::Unknown("another stream than the expected one has acknowledged it".into());
        }
        Ok(ack) if ack.duplicate => return Outcome::Duplicate,
        Ok(_) => return Outcome::Accepted,
        Err(error) => error,
    };
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            Outcome::retry("no stream takes this subject; create one, or correct the destination")
        }
        PublishErrorKind::TimedOut => Outcome::Unknown("the stream did not answer in time".into()),
        PublishErrorKind::BrokenPipe => Outcome::Unknown("the connection broke before there was an answer".into()),
        _ => match error.source().and_then(|source| source.downcast_ref::<jetstream::Error>()) {
            Some(error) => of_code(error.error_code()),
            None => Outcome::Unknown("something answered that is no stream; who else listens on the subject?".into()),
        },
    }
}

/// What the refusal of a stream means.
fn of_code(code: ErrorCode) -> Outcome {
    let number = code.0;
    match code {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
            Outcome::Reject(format!("it is larger than the stream takes (error {number})"))
        }
        ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            Outcome::Reject(format!("its headers are larger than the stream takes (error {number})"))
        }
        ErrorCode::STREAM_NOT_MATCH => Outcome::retry(format!(
            "its subject belongs to another stream than the setting stream says (error {number}); correct one of them"
        )),
        ErrorCode::STREAM_STORE_FAILED => Outcome::retry(format!(
            "the stream cannot store it (error {number}); is it full? give it room, or let it discard old messages"
        )),
        ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED => {
            Outcome::retry(format!("the account or server has no resources left (error {number}); give it more"))
        }
        _ => Outcome::retry(format!("the stream refused it (error {number})")),
    }
}

/// What became of a message that could not be given to the connection.
pub(super) fn of_unsent(error: &PublishError) -> Outcome {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => {
            Outcome::Unsendable("it is larger than the server takes (max_payload)".into())
        }
        PublishErrorKind::TimedOut => Outcome::retry("nothing was sent: the connection has no room"),
        _ => Outcome::retry("nothing was sent: the connection broke"),
    }
}

/// Why there is no connection. It names no address and no credentials.
pub(super) fn no_connection(error: &ConnectError) -> String {
    let what = match error.kind() {
        ConnectErrorKind::AuthorizationViolation => {
            "the server refused the credentials; check user, token, key or credentials"
        }
        ConnectErrorKind::Authentication => "the credentials cannot be used; check nkey_seed or credentials",
        ConnectErrorKind::Dns => "the name of the server is not known",
        ConnectErrorKind::TimedOut => "no connection within connect_timeout",
        ConnectErrorKind::Tls => "TLS cannot be set up; check the files in tls",
        _ => return format!("no connection{}", cause(error)),
    };
    what.into()
}

fn cause(error: &ConnectError) -> String {
    let first: Option<&(dyn Error + 'static)> = error.source();
    let io = std::iter::successors(first, |error: &&(dyn Error + 'static)| (*error).source())
        .find_map(|error| error.downcast_ref::<std::io::Error>());
    match io {
        // rustls wraps its errors like this; they tell of certificates and name no address.
        Some(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            format!(": TLS failed: {}", error.to_string().chars().take(200).collect::<String>())
        }
        Some(error) => format!(": {}", error.kind()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> Result<PublishAck, PublishError> {
        match serde_json::from_str(text).expect(text) {
            jetstream::response::Response::Ok(ack) => Ok(ack),
            jetstream::response::Response::Err { error } => {
                Err(PublishError::with_source(PublishErrorKind::Other, error))
            }
        }
    }

    #[test]
    fn the_table_of_outcomes_holds() {
        let error = |code: u64| format!(r#"{{"error":{{"code":400,"err_code":{code},"description":"canary"}}}}"#);
        for (answer, kind) in [
            (r#"{"stream":"S","seq":1}"#.to_owned(), "accepted"),
            (r#"{"stream":"S","seq":1,"duplicate":true}"#.to_owned(), "duplicate"),
            (r#"{"stream":"T","seq":1}"#.to_owned(), "unknown"),
            (r#"{"stream":"T","seq":1,"duplicate":true}"#.to_owned(), "unknown"),
            (error(10054), "reject"),
            (error(10097), "reject"),
            (error(10060), "retry"),
            (error(10077), "retry"),
            (error(10047), "retry"),
            (error(10109), "retry"),
            (error(99999), "retry"),
        ] {
            let outcome = of_answer(answered(&answer), Some("S"));
            assert_eq!(outcome.kind(), kind, "{answer}");
            assert!(!format!("{outcome:?}").contains("canary"), "{outcome:?}");
        }
        for (kind, expected) in [
            (PublishErrorKind::StreamNotFound, "retry"),
            (PublishErrorKind::TimedOut, "unknown"),
            (PublishErrorKind::BrokenPipe, "unknown"),
            (PublishErrorKind::Other, "unknown"),
        ] {
            assert_eq!(of_answer(Err(PublishError::new(kind)), None).kind(), expected, "{kind:?}");
        }
        for (kind, expected) in [
            (PublishErrorKind::MaxPayloadExceeded, "unsendable"),
            (PublishErrorKind::TimedOut, "retry"),
            (PublishErrorKind::Other, "retry"),
        ] {
            assert_eq!(of_unsent(&PublishError::new(kind)).kind(), expected, "{kind:?}");
        }
    }
}
