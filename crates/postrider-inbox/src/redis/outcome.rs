//! What an error of Redis, or no answer, means.
//!
//! | what happened | kind | for a caller |
//! |---|---|---|
//! | no connection could be made, or `ERR` while it is made, as when there are too many clients | no connection | unavailable |
//! | the connection broke, or another server is the right one (`READONLY`, `MOVED`, `ASK`) | broken | unavailable, after another try |
//! | no answer in time | silent | unavailable |
//! | `OOM`, `LOADING`, `MASTERDOWN`, `BUSY`, `TRYAGAIN`, `CLUSTERDOWN`, `NOREPLICAS`, `MISCONF` | passing | unavailable |
//! | a certificate that is not trusted, credentials, permissions, `WRONGTYPE`, anything else | refused | failed |
//!
//! Redis 6 wraps what goes wrong inside a script in an `ERR`; its code is looked for in the text.
//!
//! A full memory counts as passing because it does pass: what the inbox remembers runs out. Either way the event is not
//! processed. No text of the server is passed on, only its code.

use std::error::Error;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use crate::InboxError;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub(super) struct Problem {
    pub(super) kind: Kind,
    what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// No connection could be made; nothing was sent.
    NoConnection,
    /// The connection is of no more use; another may be.
    Broken,
    /// Nothing came in time.
    Silent,
    /// The server cannot do it now.
    Passing,
    /// The server will not do it.
    Refused,
}

impl Problem {
    pub(super) fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }

    /// No answer in time.
    pub(super) fn silent() -> Self {
        Self::new(Kind::Silent, "Redis did not answer in time")
    }

    /// The same after an earlier try broke: something was sent, though not by the last one.
    pub(super) fn after_a_try(self) -> Self {
        let kind = if self.kind == Kind::NoConnection { Kind::Broken } else { self.kind };
        Self { kind, ..self }
    }

    /// Whether the connection is not to be used again.
    pub(super) fn needs_another_connection(&self) -> bool {
        matches!(self.kind, Kind::Broken | Kind::Silent)
    }

    /// What an answer that is none means.
    pub(super) fn of_answer(error: &RedisError) -> Self {
        match error.code() {
            Some(code) => of_code(inner_code(code, error.detail())),
            None if error.is_timeout() => Self::silent(),
            None if is_refusal(error) => Self::new(Kind::Refused, credentials()),
            None if matches!(error.kind(), ErrorKind::UnexpectedReturnType | ErrorKind::Parse) => {
                Self::new(Kind::Refused, "Redis answered with something that no script of the inbox answers")
            }
            None => Self::new(Kind::Broken, "the connection to Redis broke before there was an answer"),
        }
    }

    /// Why there is no connection. It names no address and no credentials.
    pub(super) fn of_connecting(error: &RedisError) -> Self {
        match error.code() {
            _ if is_refusal(error) => Self::new(Kind::Refused, credentials()),
            Some(code) => {
                let problem = of_code(inner_code(code, error.detail()));
                let is_refused = problem.kind == Kind::Refused && code != "ERR";
                Self { kind: if is_refused { Kind::Refused } else { Kind::NoConnection }, ..problem }
            }
            None if error.kind() == ErrorKind::InvalidClientConfig => {
                Self::new(Kind::Refused, "the connection to Redis cannot be set up; check the certificates")
            }
            None => {
                let (kind, cause) = cause(error);
                Self::new(kind, format!("no connection to Redis{cause}"))
            }
        }
    }
}

impl From<Problem> for InboxError {
    fn from(problem: Problem) -> Self {
        match problem.kind {
            Kind::Refused => Self::Failed(problem.into()),
            _ => Self::Unavailable(problem.into()),
        }
    }
}

fn credentials() -> &'static str {
    "Redis refused the credentials; check username and password"
}

fn is_refusal(error: &RedisError) -> bool {
    let is_said = |text: &str| REFUSALS.iter().any(|refusal| text.contains(refusal));
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        // A cluster's connection tells the reason in text only.
        || error.code().is_none() && error.detail().is_some_and(is_said)
}

/// What the text of a connection that is refused says.
const REFUSALS: [&str; 4] = ["NOAUTH", "WRONGPASS", "Password authentication failed", "AuthenticationFailed"];
/// What the text of a connection says that is not trusted: rustls' words.
const DISTRUSTS: [&str; 3] = ["peer certificate", "received fatal alert", "received corrupt message"];
/// What Redis 6 hides in an `ERR`.
const INNER_CODES: [&str; 8] =
    ["READONLY", "OOM", "MISCONF", "NOREPLICAS", "WRONGTYPE", "LOADING", "MASTERDOWN", "CLUSTERDOWN"];
/// Not a code of Redis: too many clients, which it says with `ERR`.
const TOO_MANY: &str = "MAXCLIENTS";

/// The code that an `ERR` stands for.
fn inner_code<'a>(code: &'a str, text: Option<&str>) -> &'a str {
    let Some(text) = text.filter(|_| code == "ERR") else { return code };
    if text.starts_with("max number of clients") {
        return TOO_MANY;
    }
    // Other texts may repeat what was sent.
    let Some((_, text)) = text.split_once("running script") else { return code };
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.find_map(|word| INNER_CODES.into_iter().find(|inner| *inner == word)).unwrap_or(code)
}

/// What an error code means. The code is the server's first word, which holds nothing of an event.
fn of_code(code: &str) -> Problem {
    let (kind, advice) = match code {
        "OOM" => (Kind::Passing, "; its memory is full, give it more or keep events for a shorter time"),
        TOO_MANY => (Kind::Passing, "; it has too many clients, raise its maxclients"),
        "LOADING" => (Kind::Passing, "; it is still loading its data"),
        "MISCONF" => (Kind::Passing, "; it cannot write to its disk"),
        "CLUSTERDOWN" => (Kind::Passing, "; not all slots are served"),
        "MASTERDOWN" | "BUSY" | "TRYAGAIN" | "NOREPLICAS" => (Kind::Passing, ""),
        "READONLY" => (Kind::Broken, "; this server is a replica"),
        "MOVED" | "ASK" => (Kind::Broken, "; another server has the key, is it a cluster?"),
        "NOAUTH" | "WRONGPASS" => (Kind::Refused, "; check username and password"),
        "NOPERM" => (Kind::Refused, "; the user lacks a permission that the inbox needs"),
        "WRONGTYPE" => (Kind::Refused, "; a key of the inbox holds something else, choose another prefix"),
        _ => (Kind::Refused, ""),
    };
    let code: String = code.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    Problem::new(kind, format!("Redis answered {code}{advice}"))
}

/// Why there is no connection. One that is not trusted is refused: nobody is to go on without protection because of it.
fn cause(error: &RedisError) -> (Kind, String) {
    let is_distrust = |text: &str| DISTRUSTS.iter().any(|distrust| text.contains(distrust));
    if error.detail().is_some_and(is_distrust) {
        return (Kind::Refused, ": TLS failed; check the certificates".into());
    }
    // The library keeps the cause in an `Arc`, which hides it behind an error of its own.
    let shared = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    match shared.and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
        // rustls wraps its errors like this; they tell of certificates and name no address.
        Some(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            (Kind::Refused, format!(": TLS failed: {}", error.to_string().chars().take(200).collect::<String>()))
        }
        Some(error) => (Kind::NoConnection, format!(": {}", error.kind())),
        None => (Kind::NoConnection, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error is a value");
        value.extract_error().expect_err("an error")
    }

    #[test]
    fn the_table_of_problems_holds() {
        for (code, kind) in [
            ("OOM", Kind::Passing),
            ("LOADING", Kind::Passing),
            ("CLUSTERDOWN", Kind::Passing),
            ("MISCONF", Kind::Passing),
            ("READONLY", Kind::Broken),
            ("MOVED", Kind::Broken),
            ("NOAUTH", Kind::Refused),
            ("WRONGPASS", Kind::Refused),
            ("NOPERM", Kind::Refused),
            ("WRONGTYPE", Kind::Refused),
            ("ERR", Kind::Refused),
        ] {
            let problem = Problem::of_answer(&answer(&format!("{code} canary")));
            assert_eq!(problem.kind, kind, "{code}");
            assert!(!problem.to_string().contains("canary"), "{problem}");
            assert_eq!(matches!(InboxError::from(problem), InboxError::Failed(_)), kind == Kind::Refused, "{code}");
        }
        let io = |kind| RedisError::from(std::io::Error::from(kind));
        let untrusted =
            RedisError::from(std::io::Error::new(std::io::ErrorKind::InvalidData, "invalid peer certificate"));
        assert_eq!(Problem::of_connecting(&untrusted).kind, Kind::Refused);
        assert_eq!(Problem::of_answer(&io(std::io::ErrorKind::BrokenPipe)).kind, Kind::Broken);
        assert_eq!(Problem::of_answer(&io(std::io::ErrorKind::TimedOut)).kind, Kind::Silent);
        let refused = Problem::of_connecting(&io(std::io::ErrorKind::ConnectionRefused));
        assert_eq!((refused.kind, refused.to_string().contains("refused")), (Kind::NoConnection, true), "{refused}");
        assert_eq!(Problem::of_connecting(&answer("LOADING x")).kind, Kind::NoConnection);
        assert_eq!(Problem::of_connecting(&answer("WRONGPASS x")).kind, Kind::Refused);
    }

    /// Redis 6 says them so; Redis 7 begins with the code.
    #[test]
    fn errors_inside_scripts_are_recognised() {
        for (code, kind) in [
            ("READONLY", Kind::Broken),
            ("OOM", Kind::Passing),
            ("MISCONF", Kind::Passing),
            ("NOREPLICAS", Kind::Passing),
            ("LOADING", Kind::Passing),
            ("MASTERDOWN", Kind::Passing),
            ("CLUSTERDOWN", Kind::Passing),
            ("WRONGTYPE", Kind::Refused),
        ] {
            for text in [
                format!(
                    "ERR Error running script (call to f_c0ffee): @user_script:34: @user_script: 34: -{code} canary."
                ),
                format!("ERR Error running script (call to f_c0ffee): @user_script:34: {code} canary"),
            ] {
                let problem = Problem::of_answer(&answer(&text));
                assert_eq!(problem.kind, kind, "{text}");
                let shown = problem.to_string();
                assert!(shown.contains(code) && !shown.contains("canary"), "{shown}");
            }
        }
        for text in ["ERR unknown command 'OOM'", "ERR Error running script (call to f_OOM): OOMS"] {
            assert_eq!(Problem::of_answer(&answer(text)).kind, Kind::Refused, "{text}");
        }
    }

    #[test]
    fn a_server_with_too_many_clients_is_not_reached() {
        let full = answer("ERR max number of clients reached");
        assert_eq!(Problem::of_answer(&full).kind, Kind::Passing);
        assert_eq!(Problem::of_connecting(&full).kind, Kind::NoConnection);
        assert_eq!(Problem::of_connecting(&answer("ERR what")).kind, Kind::NoConnection);
    }

    /// A cluster's connection tells the reason in text only.
    #[test]
    fn a_cluster_that_is_not_trusted_or_does_not_trust_refuses() {
        let of = |why: &str| {
            let error = RedisError::from((ErrorKind::Io, "Failed to create initial connections", why.to_owned()));
            Problem::of_connecting(&error)
        };
        for why in ["invalid peer certificate: UnknownIssuer", "WRONGPASS canary", "Password authentication failed"] {
            let problem = of(why);
            assert_eq!(problem.kind, Kind::Refused, "{why}");
            assert!(!problem.to_string().contains("canary"), "{problem}");
        }
        assert_eq!(of("Connection refused").kind, Kind::NoConnection);
    }
}
