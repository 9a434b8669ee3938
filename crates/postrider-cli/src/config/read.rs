//! From the tree to the model: unknown keys first, then everything that does not fit its type.

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_path_to_error::{Path, Segment};

use super::problem::{Findings, KeyPath, Origin, Step};
use super::shape::{Field, Leaf, Shape, TYPE, Variant, nearest};
use super::tree::{Entry, Node, Table, Value};

/// Takes all keys out of the tree that the model does not know, and tables without a known `type`.
pub fn prune(tree: &mut Node, shape: &Shape, findings: &mut Findings) {
    Pruning { root: shape, findings }.node(tree, shape, &KeyPath::default());
}

struct Pruning<'a, 'b> {
    root: &'a Shape,
    findings: &'a mut Findings<'b>,
}

impl Pruning<'_, '_> {
    fn node(&mut self, node: &mut Node, shape: &Shape, path: &KeyPath) {
        match (&mut node.value, shape) {
            (Value::Table(table), Shape::Section(fields) | Shape::TextOr(fields)) => self.table(table, fields, path),
            (Value::Table(table), Shape::Named(inner)) => {
                let typed = if let Shape::Typed(variants) = &**inner { variants.as_slice() } else { &[] };
                table.retain(|name, entry| typed.is_empty() || self.has_type(entry, typed, &path.key(name)));
                table.iter_mut().for_each(|(name, entry)| self.node(&mut entry.node, inner, &path.key(name)));
            }
            (Value::Table(table), Shape::Typed(variants)) => {
                let kind = table.get(TYPE).and_then(|entry| entry.node.text());
                let variant = variants.iter().find(|variant| Some(&*variant.name) == kind);
                variant.into_iter().for_each(|variant| self.table(table, &variant.fields, path));
            }
            (Value::List(list), Shape::List(inner)) => {
                list.iter_mut().enumerate().for_each(|(at, node)| self.node(node, inner, &path.index(at)));
            }
            _ => {}
        }
    }

    fn table(&mut self, table: &mut Table, fields: &[Field], path: &KeyPath) {
        table.retain(|key, entry| {
            let known = key == TYPE || fields.iter().any(|field| field.name == *key);
            if !known {
                self.findings.add(&entry.key, path.key(key), &self.unknown(key, fields));
            }
            known
        });
        for field in fields {
            if let Some(entry) = table.get_mut(&field.name) {
                self.node(&mut entry.node, &field.shape, &path.key(&field.name));
            }
        }
    }

    fn unknown(&self, key: &str, fields: &[Field]) -> String {
        if let Some(near) = nearest(key, fields.iter().map(|field| &*field.name)) {
            return format!("there is no such key; did you mean {near:?}?");
        }
        if let Some(section) = section_with(key, self.root, "") {
            return format!("there is no such key here; it belongs into {section}");
        }
        match fields.iter().map(|field| &*field.name).collect::<Vec<_>>().as_slice() {
            [] => "there is no such key; nothing can be set here".to_owned(),
            names => format!("there is no such key; known are {}", names.join(", ")),
        }
    }

    fn has_type(&mut self, entry: &Entry, variants: &[Variant], path: &KeyPath) -> bool {
        let Some(table) = entry.node.table() else { return true };
        let names: Vec<&str> = variants.iter().map(|variant| &*variant.name).collect();
        let (origin, path, said) = match table.get(TYPE).map(|kind| (&kind.node.origin, kind.node.text())) {
            Some((_, Some(word))) if names.contains(&word) => return true,
            Some((origin, Some(word))) => {
                (origin, path.key(TYPE), format!("there is no such type; {}", choice(word, &names)))
            }
            Some((origin, None)) => (origin, path.key(TYPE), format!("this is not a type; write {}", quoted(&names))),
            None => (&entry.key, path.clone(), format!("it has no type; say type = {}", quoted(&names))),
        };
        self.findings.add(origin, path, &said);
        false
    }
}

/// The section that has this key, as it is written in a file.
fn section_with(key: &str, shape: &Shape, title: &str) -> Option<String> {
    match shape {
        Shape::Named(inner) => section_with(key, inner, &format!("{title}.NAME")),
        Shape::List(inner) => section_with(key, inner, &format!("[{title}]")),
        Shape::Section(_) | Shape::Typed(_) => {
            let fields = shape.fields();
            if !title.is_empty() && fields.iter().any(|field| field.name == key) {
                return Some(format!("[{title}]"));
            }
            let inside = |field: &&Field| {
                let title = if title.is_empty() { field.name.clone() } else { format!("{title}.{}", field.name) };
                section_with(key, &field.shape, &title)
            };
            fields.iter().find_map(inside)
        }
        Shape::TextOr(_) | Shape::Leaf(_) => None,
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ")
}

fn choice(written: &str, known: &[&str]) -> String {
    match nearest(written, known.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("write {}", quoted(known)),
    }
}

/// Reads the model from the tree. What does not fit is noted and taken out, and the rest is read again, until all that
/// is wrong has been found; the model then has defaults in these places.
pub fn read<T: DeserializeOwned + Default>(tree: &mut Node, findings: &mut Findings) -> T {
    loop {
        let wrong = match serde_path_to_error::deserialize::<_, T>(&*tree) {
            Ok(model) => return model,
            Err(wrong) => wrong,
        };
        let path = key_path(wrong.path());
        findings.add(&tree.origin_of(&path), path.clone(), &wrong.inner().0);
        if findings.is_full() || !tree.remove(&path) {
            return T::default();
        }
    }
}

fn key_path(path: &Path) -> KeyPath {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    KeyPath(path.iter().filter_map(step).collect())
}

/// The secrets that stand in the file itself.
pub fn secrets_in_plain_sight<'a>(node: &'a Node, shape: &Shape, path: &KeyPath, found: &mut Vec<(&'a Node, KeyPath)>) {
    match (&node.value, shape) {
        (Value::Text(_), Shape::Leaf(Leaf::Secret)) if matches!(node.origin, Origin::Offset(_)) => {
            found.push((node, path.clone()));
        }
        (Value::List(list), Shape::List(inner)) => {
            let each = |(at, node)| secrets_in_plain_sight(node, inner, &path.index(at), found);
            list.iter().enumerate().for_each(each);
        }
        (Value::Table(table), Shape::Named(inner)) => {
            table.iter().for_each(|(key, entry)| secrets_in_plain_sight(&entry.node, inner, &path.key(key), found));
        }
        (Value::Table(table), Shape::Section(_) | Shape::Typed(_)) => {
            for field in shape.fields() {
                if let Some(entry) = table.get(&field.name) {
                    secrets_in_plain_sight(&entry.node, &field.shape, &path.key(&field.name), found);
                }
            }
        }
        _ => {}
    }
}

/// What does not fit. Unlike serde's own texts it never repeats a value that may be a secret.
#[derive(Debug)]
pub struct Wrong(String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: std::fmt::Display>(said: T) -> Self {
        Self(in_plain_words(said.to_string()))
    }

    fn invalid_type(given: Unexpected, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let wanted = in_our_words(&expected);
        let needless_quotes = match given {
            Unexpected::Str(text) => match wanted {
                NUMBER => text.parse::<i64>().is_ok(),
                BOOLEAN => text == "true" || text == "false",
                _ => false,
            },
            _ => false,
        };
        let hint = if needless_quotes { " without quotes" } else { "" };
        Self(format!("this is {}; it must be {wanted}{hint}", kind(given)))
    }

    fn invalid_value(given: Unexpected, expected: &dyn Expected) -> Self {
        match given {
            Unexpected::Signed(number) if number < 0 => Self(format!("{number} is too small; it must be 0 or more")),
            Unexpected::Signed(_) | Unexpected::Unsigned(_) => {
                Self("this number is too large; write a smaller one".into())
            }
            _ => Self(format!("this cannot be used; it must be {expected}")),
        }
    }

    fn unknown_variant(written: &str, known: &'static [&'static str]) -> Self {
        Self(format!("there is no such choice; {}", choice(written, known)))
    }

    fn unknown_field(written: &str, known: &'static [&'static str]) -> Self {
        match nearest(written, known.iter().copied()) {
            Some(near) => Self(format!("it has a key that is not known; did you mean {near:?}?")),
            None => Self(format!("it has a key that is not known; known are {}", known.join(", "))),
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self(format!("it has no {field}; add it"))
    }
}

const NUMBER: &str = "a whole number";
const BOOLEAN: &str = "true or false";

/// What libraries say of text that they cannot read, with what to do.
fn in_plain_words(said: String) -> String {
    match said.as_str() {
        "invalid socket address syntax" => {
            "this is not an address to listen on; write an IP address and a port, such as \"127.0.0.1:9464\"".into()
        }
        uuid if uuid.starts_with("UUID parsing failed") => {
            "this is not a UUID; write one such as \"0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d\"".into()
        }
        _ => said,
    }
}

/// What serde and its derive call the types, in the words of the reference.
fn in_our_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => NUMBER,
        "f32" | "f64" => "a number",
        "a boolean" => BOOLEAN,
        "a string" => "text",
        "a sequence" => "a list",
        "a map" => "a table",
        "a formatted UUID string" => "a UUID in quotes",
        "socket address" => "an IP address and a port in quotes",
        text if text.starts_with("struct ") => "a table",
        text if text.starts_with("enum ") || text == "variant identifier" => "text",
        text => text,
    }
}

fn kind(given: Unexpected) -> &'static str {
    match given {
        Unexpected::Bool(_) => BOOLEAN,
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => NUMBER,
        Unexpected::Float(number) if number.is_infinite() => "a number that is too large",
        Unexpected::Float(_) => "a number that is not whole",
        Unexpected::Str(_) | Unexpected::Char(_) => "text",
        Unexpected::Seq => "a list",
        Unexpected::Map => "a table",
        _ => "something else",
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::Text(text) => visitor.visit_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(value) => visitor.visit_bool(*value),
            Value::Date => Err(Wrong("this is a date; no setting is one".into())),
            Value::List(list) => visitor.visit_seq(SeqDeserializer::new(list.iter())),
            Value::Table(table) => {
                let (first, rest): (Vec<_>, Vec<_>) = table.iter().partition(|(key, _)| *key == TYPE);
                let entries = first.into_iter().chain(rest).map(|(key, entry)| (key.as_str(), &entry.node));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::Text(word) => visitor.visit_enum(StrDeserializer::new(word)),
            Value::Table(table) => {
                let entries = table.iter().map(|(key, entry)| (key.as_str(), &entry.node));
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(entries)))
            }
            _ => Err(Wrong(format!("this is not a choice; write {}", quoted(known)))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Wrong> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
