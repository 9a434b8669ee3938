//! What an error of Redis, or no answer, means.
//!
//! | what happened | kind | for a caller |
//! |---|---|---|
//! | no connection could be made | no connection | unavailable |
//! | the connection broke, or another server is the right one (`READONLY`, `MOVED`, `ASK`) | broken | unavailable, after another try |
//! | no answer in time | silent | unavailable |
//! | `OOM`, `LOADING`, `MASTERDOWN`, `BUSY`, `TRYAGAIN`, `CLUSTERDOWN`, `NOREPLICAS`, `MISCONF` | passing | unavailable |
//! | credentials, permissions, `WRONGTYPE`, anything else | refused | failed |
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
            Some(code) => of_code(code),
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
                let problem = of_code(code);
                let kind = if problem.kind == Kind::Refused { Kind::Refused } else { Kind::NoConnection };
                Self { kind, ..problem }
            }
            None if error.kind() == ErrorKind::InvalidClientConfig => {
                Self::new(Kind::Refused, "the connection to Redis cannot be set up; check the certificates")
            }
            None => Self::new(Kind::NoConnection, format!("no connection to Redis{}", cause(error))),
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
    error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// What an error code means. The code is the server's first word, which holds nothing of an event.
fn of_code(code: &str) -> Problem {
    let (kind, advice) = match code {
        "OOM" => (Kind::Passing, "; its memory is full, give it more or keep events for a shorter time"),
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

fn cause(error: &RedisError) -> String {
    // The library keeps the cause in an `Arc`, which hides it behind an error of its own.
    let shared = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    match shared.and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
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
        assert_eq!(Problem::of_answer(&io(std::io::ErrorKind::BrokenPipe)).kind, Kind::Broken);
        assert_eq!(Problem::of_answer(&io(std::io::ErrorKind::TimedOut)).kind, Kind::Silent);
        let refused = Problem::of_connecting(&io(std::io::ErrorKind::ConnectionRefused));
        assert_eq!((refused.kind, refused.to_string().contains("refused")), (Kind::NoConnection, true), "{refused}");
        assert_eq!(Problem::of_connecting(&answer("LOADING x")).kind, Kind::NoConnection);
        assert_eq!(Problem::of_connecting(&answer("WRONGPASS x")).kind, Kind::Refused);
    }
}
