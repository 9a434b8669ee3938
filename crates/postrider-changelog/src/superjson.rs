//! Superjson: JSON, and beside it what JSON cannot say.
//!
//! A text is `{"json": …, "meta": …}`. `json` has the value with stand-ins: text for a time, a list for a set. `meta.values` says what
//! they stand for, as a tree: `["Date"]` is a time, `["set", {"0": ["Date"]}]` a set whose first item is one, and an object has
//! trees by path, `{"a.b": ["bigint"]}`. Paths are joined by dots; dots and backslashes in keys have a backslash before them.
//!
//! A text that is not understood in full is refused, never read in part: its error says what, and where. Errors name keys and
//! types, never content.

mod annotate;
mod equalities;
mod parse;
mod path;
mod write;

use crate::Value;

pub(crate) use path::Path;

/// How deeply a text may nest, so that a hostile one cannot exhaust the stack.
const DEEPEST_TEXT: usize = 128;
/// How deeply a value may nest, which leaves some levels to what it is in.
const DEEPEST_VALUE: usize = 120;

/// A value as superjson text, `{"json": …, "meta": …}`, as version 2 of the package for JavaScript writes it.
///
/// Every value has a text, but not every text is read by everybody: see [`Value::check`].
pub fn encode(value: &Value) -> String {
    write::write(value)
}

/// Reads superjson text, of this version or an older one.
///
/// An object that was there twice is read as two equal ones. One that contains itself is refused, and so are types that have no
/// [`Value`]: classes, symbols, errors, regular expressions, addresses and what applications have registered themselves.
pub fn decode(text: &str) -> Result<Value, InvalidSuperjson> {
    let mut parts = parse::object(parse::syntax(text)?)?;
    let Some(json) = parts.remove("json") else {
        return refuse("superjson is an object with the key \"json\", and this one has none");
    };
    let mut value = parse::value(json, DEEPEST_TEXT)?;
    let Some(meta) = parts.remove("meta") else { return Ok(value) };
    // Every level of a value has two in the tree: the pair of type and children, and the children.
    match parse::value(meta, 2 * DEEPEST_TEXT + 2)? {
        Value::Null => {}
        Value::Object(meta) => {
            let escapes = match meta.get("v") {
                None => path::Escapes::Dots,
                Some(Value::Number(0.0)) => path::Escapes::Dots,
                Some(Value::Number(1.0)) => path::Escapes::DotsAndBackslashes,
                Some(_) => return refuse("meta.v of superjson is not 0 or 1; a newer version of it is not understood"),
            };
            if let Some(tree) = meta.get("values") {
                annotate::annotate(&mut value, tree, escapes)?;
            }
            if let Some(equalities) = meta.get("referentialEqualities") {
                equalities::copy(&mut value, equalities, escapes, text.len())?;
            }
        }
        other => return refuse(format!("meta of superjson is {}, and should be an object", other.kind())),
    }
    Ok(value)
}

impl Value {
    /// Whether everybody who reads superjson can read it: it does not nest too deeply, and no object in it has the key
    /// `__proto__`, `constructor` or `prototype`.
    pub fn check(&self) -> Result<(), InvalidSuperjson> {
        check(self, DEEPEST_VALUE, &mut Path::default())
    }
}

fn check(value: &Value, levels: usize, path: &mut Path) -> Result<(), InvalidSuperjson> {
    let needed = match value {
        Value::Map(_) => 2,
        Value::Array(_) | Value::Set(_) | Value::Object(_) | Value::Bytes(_) => 1,
        _ => 0,
    };
    let Some(levels) = levels.checked_sub(needed) else {
        return refuse(format!("a value nests more than {DEEPEST_VALUE} deep, which not everybody can read"));
    };
    match value {
        Value::Array(items) | Value::Set(items) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| path.below(&index.to_string(), |path| check(item, levels, path)))
        }
        Value::Object(fields) => fields.iter().try_for_each(|(key, field)| {
            path.below(key, |path| {
                path.check()?;
                check(field, levels, path)
            })
        }),
        Value::Map(rows) => rows.iter().enumerate().try_for_each(|(index, (key, value))| {
            path.below(&index.to_string(), |path| {
                path.below("0", |path| check(key, levels, path))?;
                path.below("1", |path| check(value, levels, path))
            })
        }),
        _ => Ok(()),
    }
}

/// A text is no superjson, or says what there is no value for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSuperjson(pub(crate) String);

fn refuse<T>(why: impl Into<String>) -> Result<T, InvalidSuperjson> {
    Err(InvalidSuperjson(why.into()))
}

#[cfg(test)]
mod tests;
