//! Puts what `meta.values` says in the place of its stand-ins.

use std::mem;

use super::path::{Escapes, Path};
use super::{InvalidSuperjson, refuse};
use crate::Value;

pub(super) fn annotate(value: &mut Value, tree: &Value, escapes: Escapes) -> Result<(), InvalidSuperjson> {
    branch(value, tree, escapes, &Path::default())
}

/// Children first: they are found in a list as long as it is one.
fn branch(value: &mut Value, tree: &Value, escapes: Escapes, path: &Path) -> Result<(), InvalidSuperjson> {
    match tree {
        Value::Null => Ok(()),
        Value::Object(children) => children.iter().try_for_each(|(key, child)| {
            let path = path.join(Path::parse(key, escapes)?);
            branch(value, child, escapes, &path)
        }),
        Value::Array(pair) => {
            let (kind, children) = match &pair[..] {
                [kind] => (kind, &Value::Null),
                [kind, children @ (Value::Object(_) | Value::Null)] => (kind, children),
                _ => return refuse(format!("meta.values of superjson is not a type and its children for {path}")),
            };
            branch(value, children, escapes, path)?;
            let Some(place) = find(value, path) else {
                return refuse(format!("meta.values of superjson has a type for {path}, and there is nothing"));
            };
            let plain = mem::replace(place, Value::Null);
            *place = typed(plain, &Kind::of(kind, path)?, path)?;
            Ok(())
        }
        other => refuse(format!("meta.values of superjson has {} for {path}", other.kind())),
    }
}

/// What is at a place.
pub(super) fn find<'a>(mut value: &'a mut Value, path: &Path) -> Option<&'a mut Value> {
    let mut keys = path.keys().iter();
    while let Some(key) = keys.next() {
        value = match value {
            Value::Object(fields) => fields.get_mut(key)?,
            Value::Array(items) | Value::Set(items) => items.get_mut(index(key)?)?,
            Value::Map(rows) => {
                let (key, value) = rows.get_mut(index(key)?)?;
                match keys.next()?.as_str() {
                    "0" => key,
                    "1" => value,
                    _ => return None,
                }
            }
            _ => return None,
        };
    }
    Some(value)
}

fn index(key: &str) -> Option<usize> {
    key.bytes().all(|byte| byte.is_ascii_digit()).then(|| key.parse().ok()).flatten()
}

/// A type by name; one with two names is of a family, like `["typed-array", "Uint8Array"]`.
struct Kind<'a>(&'a str, Option<&'a str>);

impl<'a> Kind<'a> {
    fn of(kind: &'a Value, path: &Path) -> Result<Self, InvalidSuperjson> {
        match kind {
            Value::Text(name) => Ok(Self(name, None)),
            Value::Array(names) => match &names[..] {
                [Value::Text(family), Value::Text(name)] => Ok(Self(family, Some(name))),
                _ => refuse(format!("meta.values of superjson has a type for {path} that is no name")),
            },
            _ => refuse(format!("meta.values of superjson has a type for {path} that is no name")),
        }
    }
}

fn typed(plain: Value, kind: &Kind<'_>, path: &Path) -> Result<Value, InvalidSuperjson> {
    let found = plain.kind();
    let value = match (kind, plain) {
        (Kind("undefined", None), Value::Null) => Some(Value::Undefined),
        (Kind("bigint", None), Value::Text(text)) => integer(&text),
        (Kind("Date", None), Value::Text(text)) => text.parse().ok().map(Value::Date),
        (Kind("number", None), Value::Text(text)) => number(&text),
        (Kind("set", None), Value::Array(items)) => Some(Value::Set(items)),
        (Kind("map", None), Value::Array(rows)) => rows.into_iter().map(row).collect::<Option<_>>().map(Value::Map),
        (Kind("typed-array", Some("Uint8Array")), Value::Array(items)) => {
            items.iter().map(byte).collect::<Option<_>>().map(Value::Bytes)
        }
        (Kind("undefined" | "bigint" | "Date" | "number" | "set" | "map", None), _) => None,
        (Kind("typed-array", Some("Uint8Array")), _) => None,
        (Kind(name, None), _) => return refuse(format!("{path} is of the type {name:?}, which is not understood")),
        (Kind(family, Some(name)), _) => {
            return refuse(format!("{path} is of the type {family:?} {name:?}, which is not understood"));
        }
    };
    let Kind(family, name) = kind;
    let name = name.unwrap_or(family);
    value.ok_or_else(|| InvalidSuperjson(format!("{path} is to be of the type {name:?}, and {found} there is not")))
}

fn integer(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let sound = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    sound.then(|| text.parse().ok()).flatten().map(Value::BigInt)
}

fn number(text: &str) -> Option<Value> {
    let number = match text {
        "NaN" => f64::NAN,
        "Infinity" => f64::INFINITY,
        "-Infinity" => f64::NEG_INFINITY,
        "-0" => -0.0,
        _ => return None,
    };
    Some(Value::Number(number))
}

fn row(row: Value) -> Option<(Value, Value)> {
    let Value::Array(sides) = row else { return None };
    let [key, value] = <[Value; 2]>::try_from(sides).ok()?;
    Some((key, value))
}

fn byte(item: &Value) -> Option<u8> {
    match item {
        Value::Number(number) if number.fract() == 0.0 && (0.0..=255.0).contains(number) => Some(*number as u8),
        _ => None,
    }
}
