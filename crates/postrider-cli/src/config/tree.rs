//! The configuration as a tree of values that know where they come from.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::problem::{Findings, KeyPath, Origin, Step};

/// A value and where it stands. It has no `Debug`, because it may hold secrets.
pub struct Node {
    /// Where the value stands.
    pub origin: Origin,
    /// The value.
    pub value: Value,
}

/// What a node holds.
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number that is not whole, or too large.
    Float(f64),
    /// True or false.
    Boolean(bool),
    /// A date or time; no setting is one.
    Date,
    /// A list.
    List(Vec<Node>),
    /// A table.
    Table(Table),
}

/// Keys with what they hold.
pub type Table = BTreeMap<String, Entry>;

/// What is under a key.
pub struct Entry {
    /// Where the key stands.
    pub key: Origin,
    /// What it holds.
    pub node: Node,
}

impl Node {
    /// An empty table.
    pub fn empty(origin: Origin) -> Self {
        Self { origin, value: Value::Table(Table::new()) }
    }

    /// Its entries, if it is a table.
    pub fn table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Its text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The entries of a table under a key; none if there is no such table.
    pub fn names(&self, key: &str) -> impl Iterator<Item = &String> {
        self.child(&Step::Key(key.to_owned())).and_then(Node::table).into_iter().flat_map(BTreeMap::keys)
    }

    /// What is one step further.
    pub fn child(&self, step: &Step) -> Option<&Node> {
        match (&self.value, step) {
            (Value::Table(table), Step::Key(key)) => table.get(key).map(|entry| &entry.node),
            (Value::List(list), Step::Index(index)) => list.get(*index),
            _ => None,
        }
    }

    /// The origin of what is at a path, or of the nearest thing around it. A table is where its key is.
    pub fn origin_of(&self, path: &KeyPath) -> Origin {
        let (mut node, mut origin) = (self, &self.origin);
        for step in &path.0 {
            let Some(child) = node.child(step) else { break };
            origin = match (&node.value, step, &child.value) {
                (Value::Table(table), Step::Key(key), Value::Table(_)) => &table[key].key,
                _ => &child.origin,
            };
            node = child;
        }
        origin.clone()
    }

    /// Whether something is at a path.
    pub fn has(&self, path: &KeyPath) -> bool {
        path.0.iter().try_fold(self, |node, step| node.child(step)).is_some()
    }

    /// Takes out what is at a path; of a list that holds it, the whole list, so that no index changes. Answers whether
    /// something was taken.
    pub fn remove(&mut self, path: &KeyPath) -> bool {
        let Some(last) = path.0.iter().rposition(|step| matches!(step, Step::Key(_))) else { return false };
        let mut node = self;
        for step in &path.0[..last] {
            let child = match (&mut node.value, step) {
                (Value::Table(table), Step::Key(key)) => table.get_mut(key).map(|entry| &mut entry.node),
                (Value::List(list), Step::Index(index)) => list.get_mut(*index),
                _ => None,
            };
            let Some(child) = child else { return false };
            node = child;
        }
        match (&mut node.value, &path.0[last]) {
            (Value::Table(table), Step::Key(key)) => table.remove(key).is_some(),
            _ => false,
        }
    }
}

/// Reads the text of a file. What is wrong with the text itself goes to the findings; then the tree is not whole.
pub fn parse(text: &str, findings: &mut Findings) -> Node {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        // The library's Display shows the line, which may hold a secret; its message is about the grammar only.
        let origin = error.span().map_or(Origin::Whole, |span| Origin::Offset(span.start));
        findings.add(&origin, KeyPath::default(), &format!("this is not TOML: {}", error.message()));
    }
    let value = Value::Table(table(document.into_inner(), &Origin::Offset));
    Node { origin: Origin::Whole, value }
}

/// Reads one TOML value that stands in an environment variable.
pub fn parse_value(text: &str, origin: &Origin) -> Option<Value> {
    let parsed = DeValue::parse(text).ok()?;
    Some(node(parsed, &|_| origin.clone()).value)
}

fn node(spanned: Spanned<DeValue<'_>>, origin: &dyn Fn(usize) -> Origin) -> Node {
    let start = spanned.span().start;
    let value = match spanned.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => integer(&number),
        DeValue::Float(number) => Value::Float(number.as_str().replace('_', "").parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Value::Boolean(value),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(list) => Value::List(list.into_iter().map(|element| node(element, origin)).collect()),
        DeValue::Table(inner) => Value::Table(table(inner, origin)),
    };
    Node { origin: origin(start), value }
}

/// A number beyond 64 bits becomes one that is not whole, so that it is refused like one.
fn integer(number: &DeInteger<'_>) -> Value {
    match i64::from_str_radix(number.as_str(), number.radix()) {
        Ok(number) => Value::Integer(number),
        Err(_) => Value::Float(f64::INFINITY),
    }
}

fn table(table: DeTable<'_>, origin: &dyn Fn(usize) -> Origin) -> Table {
    let entry = |(key, value): (Spanned<toml::de::DeString<'_>>, Spanned<DeValue<'_>>)| {
        let at = origin(key.span().start);
        (key.into_inner().into_owned(), Entry { key: at, node: node(value, origin) })
    };
    table.into_iter().map(entry).collect()
}
