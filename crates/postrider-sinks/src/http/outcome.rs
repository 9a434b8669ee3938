//! What an answer, or its absence, means for a message.
//!
//! | answer | outcome | why |
//! |---|---|---|
//! | 2xx | accepted | |
//! | 3xx | retry | redirects are not followed; the operator puts the new address into the route |
//! | 400, 413, 414, 415, 422, 431 | reject | this very message is not wanted, and will not be the next time |
//! | 410 | reject | the receiver says that it is gone for good |
//! | 408, 425, 429, 5xx | retry | `Retry-After` is heeded |
//! | 401, 403, 404, 405, 409 and other 4xx | retry | a change at the receiver or in the configuration can mend it |
//! | none, because no request can be made of the message | unsendable | nothing was sent |
//! | not found, refused address, no connection, TLS not trusted | retry | nothing was sent |
//! | no answer in time, or the connection broke after it was made | unknown | it may have arrived |
//!
//! `duplicate_statuses`, `reject_statuses` and `retry_statuses` override the table. No text of the answer is passed on: a
//! receiver may echo the payload.

use std::error::Error;
use std::io;
use std::time::{Duration, SystemTime};

use postrider_core::Outcome;
use reqwest::StatusCode;

use super::config::HttpConfig;
use super::resolve::Unresolved;

/// The longest `Retry-After` that is believed.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// These say that the message itself is not wanted.
const REJECT: [u16; 7] = [400, 410, 413, 414, 415, 422, 431];

/// The operator's exceptions from the table.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    duplicate: Vec<u16>,
    reject: Vec<u16>,
    retry: Vec<u16>,
}

impl Rules {
    pub(super) fn new(config: &HttpConfig) -> Self {
        Self {
            duplicate: config.duplicate_statuses.clone(),
            reject: config.reject_statuses.clone(),
            retry: config.retry_statuses.clone(),
        }
    }

    /// What a status means.
    pub(super) fn outcome(&self, status: StatusCode, retry_after: Option<&str>, now: SystemTime) -> Outcome {
        let code = status.as_u16();
        if status.is_success() {
            return Outcome::Accepted;
        }
        if self.duplicate.contains(&code) {
            return Outcome::Duplicate;
        }
        let rejected = self.reject.contains(&code) || REJECT.contains(&code);
        if rejected && !self.retry.contains(&code) {
            return Outcome::Reject(format!("the destination answered {}", describe(status)));
        }
        let after = retry_after.and_then(|text| wait(text, now));
        Outcome::Retry { after, why: format!("the destination answered {}{}", describe(status), advice(status)) }
    }
}

/// The code with its usual name; what the other side calls it is not passed on.
pub(crate) fn describe(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} ({reason})", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        300..=399 => "; redirects are not followed, put the new address into the route",
        401 | 403 => "; check the authorization header or the signing key",
        404 | 405 => "; check the address in the route",
        _ => "",
    }
}

/// How long `Retry-After` asks to wait: seconds, or a date. What is past, negative or neither is as if it were not there,
/// and what is absurdly long is cut.
pub fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let wait = match !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // Digits that are no number are too many.
        true => text.parse().map_or(LONGEST_RETRY_AFTER, Duration::from_secs),
        false => httpdate::parse_http_date(text).ok()?.duration_since(now).ok()?,
    };
    Some(wait.min(LONGEST_RETRY_AFTER)).filter(|wait| !wait.is_zero())
}

/// What a request without an answer means.
pub(crate) fn of_error(error: &reqwest::Error) -> Outcome {
    if let Some(unresolved) = causes(error).find_map(|cause| cause.downcast_ref::<Unresolved>()) {
        return Outcome::retry(format!("nothing was sent: {unresolved}"));
    }
    if error.is_builder() {
        return Outcome::Unsendable("it cannot be sent as an HTTP request".into());
    }
    if error.is_connect() {
        return Outcome::retry(format!("nothing was sent: {}", no_connection(error)));
    }
    match error.is_timeout() {
        true => Outcome::Unknown("the destination did not answer in time".into()),
        false => Outcome::Unknown("the connection broke before there was an answer".into()),
    }
}

fn no_connection(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no connection within connect_timeout".into();
    }
    let concrete = |error: &&io::Error| error.kind() != io::ErrorKind::Other;
    match causes(error).filter_map(|cause| cause.downcast_ref()).find(concrete) {
        // rustls wraps its errors like this; they tell of certificates and name no address.
        Some(error) if error.kind() == io::ErrorKind::InvalidData => {
            format!("TLS failed: {}", error.to_string().chars().take(200).collect::<String>())
        }
        Some(error) => format!("no connection: {}", error.kind()),
        None => "no connection".into(),
    }
}

/// An error, its cause, the cause of that and so on. What an I/O error wraps is a cause of its own.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        let error: &'a (dyn Error + 'static) = *error;
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r57_retry_after_is_seconds_or_a_date_and_never_absurd() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        for (text, expected) in [
            ("0", None),
            ("7", Some(7)),
            (" 120 ", Some(120)),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
            ("86401", Some(86_400)),
            ("99999999999999999999999999", Some(86_400)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sunday, 06-Nov-94 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:00:00 GMT", None),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(86_400)),
            ("Sun, 06 Nov 1994", None),
        ] {
            assert_eq!(wait(text, now), expected.map(Duration::from_secs), "{text:?}");
        }
    }

    #[test]
    fn an_operators_rules_come_first() {
        let config = HttpConfig {
            duplicate_statuses: vec![409],
            reject_statuses: vec![404],
            retry_statuses: vec![400],
            ..HttpConfig::default()
        };
        let outcome = |status: u16| {
            let status = StatusCode::from_u16(status).expect("a status");
            Rules::new(&config).outcome(status, None, SystemTime::now()).kind()
        };
        assert_eq!([409, 404, 400, 410, 500].map(outcome), ["duplicate", "reject", "retry", "reject", "retry"]);
    }
}
