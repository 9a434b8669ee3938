//! Plain JSON as a value.
//!
//! Level by level over the raw text, because only that gives numbers as JavaScript reads them: the parser's own are not always
//! rounded to the nearest, or are of another form, depending on the features that other crates ask it for.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{InvalidSuperjson, refuse};
use crate::Value;

/// Checks that a text is JSON. This needs no stack, however deeply it nests.
pub(super) fn syntax(text: &str) -> Result<&RawValue, InvalidSuperjson> {
    read(text)
}

/// The fields of an object.
pub(super) fn object(raw: &RawValue) -> Result<BTreeMap<String, &RawValue>, InvalidSuperjson> {
    match raw.get().starts_with('{') {
        true => read(raw.get()),
        false => refuse("superjson is an object with the key \"json\", and this is none"),
    }
}

/// A value that nests at most so many levels. They are counted first, over the text: descending looks at it once for each level.
pub(super) fn value(raw: &RawValue, levels: usize) -> Result<Value, InvalidSuperjson> {
    match nesting(raw.get()) <= levels {
        true => descend(raw),
        false => refuse("superjson nests too deeply to be read"),
    }
}

/// How many lists and objects are open at once at the most, in text that is JSON.
fn nesting(text: &str) -> usize {
    let (mut open, mut most, mut quoted) = (0_usize, 0, false);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' => _ = bytes.next(),
            b'[' | b'{' if !quoted => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' if !quoted => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

fn descend(raw: &RawValue) -> Result<Value, InvalidSuperjson> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'n') => Ok(Value::Null),
        Some(b't') => Ok(Value::Bool(true)),
        Some(b'f') => Ok(Value::Bool(false)),
        Some(b'"') => Ok(Value::Text(read(text)?)),
        Some(b'[') => {
            let items: Vec<&RawValue> = read(text)?;
            Ok(Value::Array(items.into_iter().map(descend).collect::<Result<_, _>>()?))
        }
        Some(b'{') => {
            let fields = object(raw)?.into_iter().map(|(key, field)| Ok((key, descend(field)?)));
            Ok(Value::Object(fields.collect::<Result<_, _>>()?))
        }
        _ => match text.parse() {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) => refuse("a number in superjson is none"),
        },
    }
}

/// Reads text that is known to be of the right kind, so that the parser's message can quote none of it.
fn read<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Result<T, InvalidSuperjson> {
    serde_json::from_str(text).map_err(|error| InvalidSuperjson(format!("superjson is no JSON: {error}")))
}
