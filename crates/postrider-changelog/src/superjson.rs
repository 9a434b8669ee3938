//! Superjson: JSON, and beside it what JSON cannot say.

use crate::Value;

/// A value as superjson text, `{"json": …, "meta": …}`.
pub fn encode(value: &Value) -> String {
    let _ = value;
    String::new()
}

/// Reads superjson text.
pub fn decode(text: &str) -> Result<Value, InvalidSuperjson> {
    Err(InvalidSuperjson(text.len().to_string()))
}

/// A text is no superjson.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSuperjson(pub(crate) String);
