//! What an answer, or its absence, means for a message.
//!
//! | answer | outcome | why |
//! |---|---|---|
//! | the id of the entry | accepted | |
//! | nothing, with `create_streams = false` | retry | there is no such stream yet |
//! | `OOM` | retry | the memory is full, and nothing may be evicted |
//! | `LOADING`, `MASTERDOWN`, `BUSY`, `TRYAGAIN`, `CLUSTERDOWN`, `NOREPLICAS`, `MISCONF` | retry | it passes, or is the operator's to mend |
//! | `READONLY`, `MOVED`, `ASK` | retry, on a new connection | another server has the stream by now |
//! | `NOAUTH`, `WRONGPASS`, `NOPERM` | retry | credentials and permissions are the operator's to mend |
//! | `WRONGTYPE` | retry | the key is there and is no stream: the operator's to mend |
//! | any other error | retry | it was not stored |
//! | an error for a whole pipeline in a cluster | unknown | some of its messages may be stored |
//! | larger than `max_message_size`, or no name for a stream | unsendable | seen before it is sent |
//! | no connection | retry | nothing was sent |
//! | no answer in time, or the connection broke before it | unknown | it may be stored |
//! | fewer replicas than `wait_replicas` in time | unknown | it is stored, but not as safely as asked for |
//!
//! Nothing is rejected: Redis refuses no entry for what is in it. No text of the server is passed on, only its code.

use std::error::Error;
use std::sync::Arc;

use postrider_core::Outcome;
use redis::{ErrorKind, RedisError, Value};

/// What the answer to one `XADD` means.
pub(super) fn of_answer(answer: &Value) -> Outcome {
    match answer {
        Value::BulkString(_) => Outcome::Accepted,
        Value::Nil => Outcome::retry("there is no such stream; create it, or set create_streams"),
        Value::ServerError(error) => of_code(error.code()),
        _ => Outcome::Unknown("Redis answered with something that is no id of an entry".into()),
    }
}

/// What an error code means. The code is the server's first word, which holds nothing of the message.
fn of_code(code: &str) -> Outcome {
    let advice = match code {
        "OOM" => "; its memory is full, give it more or trim streams",
        "NOAUTH" | "WRONGPASS" => "; check username and password",
        "NOPERM" => "; the user may not XADD to this stream",
        "WRONGTYPE" => "; the key exists and is no stream, remove it or choose another destination",
        "READONLY" => "; this server is a replica",
        "MISCONF" => "; it cannot write to its disk",
        "LOADING" => "; it is still loading its data",
        "CLUSTERDOWN" => "; not all slots are served",
        _ => "",
    };
    let code: String = code.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    Outcome::retry(format!("Redis answered {code}{advice}"))
}

/// What no answers at all to a pipeline mean.
pub(super) fn of_failure(error: &RedisError) -> Outcome {
    match error.code() {
        Some(code) => {
            let code: String = code.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
            Outcome::Unknown(format!("Redis answered {code} to a part of the batch"))
        }
        None if error.is_timeout() => Outcome::Unknown("Redis did not answer in time".into()),
        None => Outcome::Unknown("the connection broke before there was an answer".into()),
    }
}

/// Whether a connection is of no use after such an answer.
pub(super) fn needs_another(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if matches!(error.code(), "READONLY" | "MOVED" | "ASK" | "NOAUTH"))
}

/// Why there is no connection. It names no address and no credentials.
pub(super) fn no_connection(error: &RedisError) -> String {
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS")) => {
            "Redis refused the credentials; check username and password".into()
        }
        (_, Some("LOADING")) => "Redis is still loading its data".into(),
        (_, Some(code)) => {
            format!("Redis answered {}", code.chars().filter(char::is_ascii_alphanumeric).take(32).collect::<String>())
        }
        (ErrorKind::InvalidClientConfig, _) => "the connection cannot be set up; check the files in tls".into(),
        _ => format!("no connection{}", cause(error)),
    }
}

fn cause(error: &RedisError) -> String {
    // The library keeps the cause in an `Arc`, which hides it behind an error of its own.
    let shared = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = shared.and_then(|cause| cause.downcast_ref::<std::io::Error>());
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

    #[test]
    fn the_table_of_outcomes_holds() {
        assert_eq!(of_answer(&Value::BulkString(b"1-0".to_vec())), Outcome::Accepted);
        assert_eq!(of_answer(&Value::Nil).kind(), "retry");
        for no_id in [Value::Int(1), Value::Okay, Value::SimpleString("QUEUED".into()), Value::Array(Vec::new())] {
            assert_eq!(of_answer(&no_id).kind(), "unknown", "{no_id:?}");
        }
        for code in ["OOM", "LOADING", "READONLY", "NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "MOVED", "ERR"] {
            let outcome = of_code(code);
            assert!(matches!(&outcome, Outcome::Retry { why, .. } if why.contains(code)), "{outcome:?}");
        }
        for (error, is_spent) in [("READONLY x", true), ("MOVED 1 h:1", true), ("ASK 1 h:1", true), ("OOM x", false)] {
            let answer = redis::parse_redis_value(format!("-{error}\r\n").as_bytes()).expect("an error is a value");
            assert_eq!((of_answer(&answer).kind(), needs_another(&answer)), ("retry", is_spent), "{error}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(of_failure(&broken).kind(), "unknown");
        assert_eq!(no_connection(&broken), "no connection: broken pipe");
    }
}
