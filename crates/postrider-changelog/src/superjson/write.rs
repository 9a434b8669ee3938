//! Values as text. Numbers and text look as JavaScript writes them.

use std::fmt::Write;

use num_bigint::BigInt;

use super::path::escape;
use crate::Value;
use crate::value::is_negative_zero;

/// What a value is that JSON cannot say, and what there is below it.
#[derive(Default)]
struct Note {
    /// Its type as JSON. Only the outermost of notes has none.
    kind: Option<&'static str>,
    /// Notes with a type, by written path.
    below: Vec<(String, Note)>,
}

impl Note {
    fn of(kind: &'static str) -> Self {
        Self { kind: Some(kind), below: Vec::new() }
    }

    /// Takes over what there is to note of something under a key. What has no type itself leaves its key in the paths.
    fn adopt(&mut self, key: &str, note: Note) {
        let key = escape(key);
        match note.kind {
            Some(_) => self.below.push((key, note)),
            None => self.below.extend(note.below.into_iter().map(|(path, note)| (format!("{key}.{path}"), note))),
        }
    }
}

pub(super) fn write(value: &Value) -> String {
    let mut text = String::from("{\"json\":");
    let note = json(&mut text, value);
    if note.kind.is_some() || !note.below.is_empty() {
        text.push_str(",\"meta\":{\"values\":");
        tree(&mut text, &note);
        text.push_str(",\"v\":1}");
    }
    text.push('}');
    text
}

fn json(text: &mut String, value: &Value) -> Note {
    match value {
        Value::Undefined => stand_in(text, "null", "\"undefined\""),
        Value::Null => plain(text, "null"),
        Value::Bool(true) => plain(text, "true"),
        Value::Bool(false) => plain(text, "false"),
        Value::Number(number) if number.is_nan() => stand_in(text, "\"NaN\"", "\"number\""),
        Value::Number(f64::INFINITY) => stand_in(text, "\"Infinity\"", "\"number\""),
        Value::Number(f64::NEG_INFINITY) => stand_in(text, "\"-Infinity\"", "\"number\""),
        Value::Number(number) if is_negative_zero(*number) => stand_in(text, "\"-0\"", "\"number\""),
        Value::Number(number) => plain(text, &number_text(*number)),
        Value::BigInt(number) => stand_in(text, &integer(number), "\"bigint\""),
        Value::Text(words) => {
            quote(text, words);
            Note::default()
        }
        Value::Date(date) => stand_in(text, &format!("\"{date}\""), "\"Date\""),
        Value::Bytes(bytes) => {
            list(text, Note::of("[\"typed-array\",\"Uint8Array\"]"), bytes, |text, byte| plain(text, &byte.to_string()))
        }
        Value::Array(items) => list(text, Note::default(), items, json),
        Value::Set(items) => list(text, Note::of("\"set\""), items, json),
        Value::Map(rows) => list(text, Note::of("\"map\""), rows, |text, (key, value)| {
            list(text, Note::default(), &[key, value], |text, side| json(text, side))
        }),
        Value::Object(fields) => {
            let mut note = Note::default();
            for (index, (key, field)) in fields.iter().enumerate() {
                text.push(if index == 0 { '{' } else { ',' });
                quote(text, key);
                text.push(':');
                note.adopt(key, json(text, field));
            }
            text.push_str(if fields.is_empty() { "{}" } else { "}" });
            note
        }
    }
}

fn plain(text: &mut String, json: &str) -> Note {
    text.push_str(json);
    Note::default()
}

fn stand_in(text: &mut String, json: &str, kind: &'static str) -> Note {
    text.push_str(json);
    Note::of(kind)
}

fn list<T>(text: &mut String, mut note: Note, items: &[T], item: impl Fn(&mut String, &T) -> Note) -> Note {
    text.push('[');
    for (index, value) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let below = item(text, value);
        note.adopt(&index.to_string(), below);
    }
    text.push(']');
    note
}

fn tree(text: &mut String, note: &Note) {
    if let Some(kind) = note.kind {
        text.push('[');
        text.push_str(kind);
    }
    if !note.below.is_empty() {
        text.push_str(if note.kind.is_some() { ",{" } else { "{" });
        for (index, (path, below)) in note.below.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            quote(text, path);
            text.push(':');
            tree(text, below);
        }
        text.push('}');
    }
    if note.kind.is_some() {
        text.push(']');
    }
}

fn integer(number: &BigInt) -> String {
    format!("\"{number}\"")
}

/// A number as JavaScript writes it: with an exponent from 1e21 on and below 1e-6, and with no fraction if it is whole.
fn number_text(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    if size < 1.0 { text } else { text.replace('e', "e+") }
}

fn quote(text: &mut String, words: &str) {
    text.push('"');
    for c in words.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            // Writing to text does not fail.
            c if c < ' ' => _ = write!(text, "\\u{:04x}", u32::from(c)),
            c => text.push(c),
        }
    }
    text.push('"');
}
