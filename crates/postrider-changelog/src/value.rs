//! Values of columns and payloads: what JSON has, and what superjson adds to it.

mod date;

use std::collections::BTreeMap;
use std::fmt;

use num_bigint::BigInt;
use serde_json::Number;

pub use date::Date;

use crate::superjson::Path;

/// The largest number up to which all whole numbers are exact in a double, 2^53.
const LARGEST_EXACT: i64 = 1 << 53;

/// A value of a column or in a payload.
///
/// Values may be secret, so printed for debugging they show their kind only.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing was said. Only in entries of your own; a column is left out instead.
    Undefined,
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A number, NaN and the infinities included.
    Number(f64),
    /// A whole number of any size.
    BigInt(BigInt),
    /// Text.
    Text(String),
    /// A time.
    Date(Date),
    /// Bytes, a `Uint8Array` in JavaScript.
    Bytes(Vec<u8>),
    /// A list.
    Array(Vec<Value>),
    /// An object.
    Object(BTreeMap<String, Value>),
    /// A set, in its order.
    Set(Vec<Value>),
    /// A map, in its order.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::BigInt(_) => "a big integer",
            Self::Text(_) => "text",
            Self::Date(_) => "a time",
            Self::Bytes(_) => "bytes",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
            Self::Set(_) => "a set",
            Self::Map(_) => "a map",
        }
    }

    /// The same as plain JSON, if plain JSON can say it.
    pub fn to_json(&self) -> Result<serde_json::Value, NotJson> {
        plain(self, &mut Path::default())
    }
}

fn plain(value: &Value, path: &mut Path) -> Result<serde_json::Value, NotJson> {
    let refused = |path: &Path| NotJson { path: path.to_string(), kind: value.kind() };
    Ok(match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => number_of(*number).ok_or_else(|| refused(path))?.into(),
        Value::Text(text) => text.as_str().into(),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let items = items.map(|(index, item)| path.below(&index.to_string(), |path| plain(item, path)));
            serde_json::Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| {
                let field = path.below(key, |path| plain(field, path))?;
                Ok((key.clone(), field))
            });
            serde_json::Value::Object(fields.collect::<Result<_, _>>()?)
        }
        _ => return Err(refused(path)),
    })
}

/// A number of JSON. Whole ones are written without a fraction.
fn number_of(number: f64) -> Option<Number> {
    let whole = number.fract() == 0.0 && number.abs() <= LARGEST_EXACT as f64 && !is_negative_zero(number);
    if whole { Some(Number::from(number as i64)) } else { Number::from_f64(number) }
}

pub(crate) fn is_negative_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}

/// Plain JSON has no way to say a value: it is undefined, no finite number, a big integer, a time, bytes, a set or a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is {kind} that plain JSON cannot say; write it as superjson, or as text")]
#[non_exhaustive]
pub struct NotJson {
    /// Where it is.
    pub path: String,
    /// What it is.
    pub kind: &'static str,
}

/// A text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a time is written like 2024-02-29T12:00:00.000Z, at most 100 million days from 1970")]
pub struct InvalidDate;

/// Values may be secret.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({})", self.kind())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

/// A number, or a big integer where a number would not be exact: beyond 2^53.
impl From<i64> for Value {
    fn from(number: i64) -> Self {
        match number.unsigned_abs() <= LARGEST_EXACT.unsigned_abs() {
            true => Self::Number(number as f64),
            false => Self::BigInt(number.into()),
        }
    }
}

impl From<BigInt> for Value {
    fn from(number: BigInt) -> Self {
        Self::BigInt(number)
    }
}

impl From<Date> for Value {
    fn from(date: Date) -> Self {
        Self::Date(date)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::Array(items)
    }
}

impl From<BTreeMap<String, Value>> for Value {
    fn from(fields: BTreeMap<String, Value>) -> Self {
        Self::Object(fields)
    }
}

/// Nothing is null.
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Whole numbers beyond 2^53 become big integers, so that no digit is lost.
impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => number.into(),
                (None, Some(number)) => Self::BigInt(number.into()),
                (None, None) => Self::Number(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Self::Text(text),
            serde_json::Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            serde_json::Value::Object(fields) => {
                Self::Object(fields.into_iter().map(|(key, field)| (key, field.into())).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_are_numbers_as_far_as_numbers_are_exact() {
        let largest = 9_007_199_254_740_992_i64;
        assert_eq!(Value::from(largest), Value::Number(9_007_199_254_740_992.0));
        assert_eq!(Value::from(-largest), Value::Number(-9_007_199_254_740_992.0));
        assert_eq!(Value::from(largest + 1), Value::BigInt(BigInt::from(9_007_199_254_740_993_i64)));
        assert_eq!(Value::from(-largest - 1), Value::BigInt(BigInt::from(-9_007_199_254_740_993_i64)));
        assert_eq!(Value::from(i64::MIN), Value::BigInt(BigInt::from(i64::MIN)));
        assert_eq!(Value::from(json!(u64::MAX)), Value::BigInt(BigInt::from(u64::MAX)));
    }

    #[test]
    fn nothing_is_null() {
        assert_eq!(Value::from(None::<i64>), Value::Null);
        assert_eq!(Value::from(Some("text")), Value::Text("text".into()));
    }

    #[test]
    fn plain_json_comes_back_as_it_was() {
        let json = json!({ "a": [1, -2.5, "text", null, true], "": { "b.c": 9_007_199_254_740_992_i64 }, "e": 1e300 });
        let back = Value::from(json.clone()).to_json().expect("plain");
        assert_eq!(back, json);
        assert_eq!(back.to_string(), json.to_string());
        assert_eq!(Value::Number(3.0).to_json().expect("plain").to_string(), "3");
        assert_eq!(Value::Number(-0.0).to_json().expect("plain").to_string(), "-0.0");
    }

    #[test]
    fn what_plain_json_cannot_say_is_refused_with_its_path() {
        for odd in [
            Value::Undefined,
            Value::Number(f64::NAN),
            Value::Number(f64::NEG_INFINITY),
            Value::BigInt(5.into()),
            Value::Date(Date::MAX),
            Value::Bytes(vec![1]),
            Value::Set(vec![]),
            Value::Map(vec![]),
        ] {
            let kind = odd.kind();
            let list = Value::Array(vec![Value::Null, odd.clone()]);
            let nested = Value::Object([("a.b".to_owned(), list)].into());
            let refused = nested.to_json().expect_err("it is odd");
            assert_eq!(refused, NotJson { path: r"a\.b.1".into(), kind });
            assert_eq!(odd.to_json().expect_err("it is odd").path, "the whole");
        }
    }

    #[test]
    fn debugging_shows_no_content() {
        let secret = Value::Object([("key".to_owned(), Value::from("secret"))].into());
        assert_eq!(format!("{secret:?}"), "Value(an object)");
        assert_eq!(format!("{:?}", Value::from("secret")), "Value(text)");
        assert!(!format!("{:?}", Value::Number(42.0)).contains("42"));
    }
}
