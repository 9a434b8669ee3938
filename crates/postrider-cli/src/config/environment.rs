//! Environment variables: `POSTRIDER__SOURCE__SHOP__LEASE=1m` sets `source.shop.lease`, whatever the file says.

use std::ffi::OsString;

use super::problem::{Findings, KeyPath, Origin, Step};
use super::shape::{Leaf, Shape, TYPE, nearest};
use super::tree::{Entry, Node, Table, Value, parse_value};

/// What the names of our variables begin with. `POSTRIDER_TEST_…`, with one underscore, is none of our business.
pub const PREFIX: &str = "POSTRIDER__";
const SEPARATOR: &str = "__";
/// It is never guessed at: another password would be used, or another key set, than was meant.
const NOT_UNICODE: &str = "its name or value is not Unicode; set it to text in UTF-8";

/// The name of a variable, and its value unless one of the two is not Unicode.
pub type Variable = (String, Option<String>);

/// The variables of this process.
pub fn environment() -> impl Iterator<Item = Variable> {
    std::env::vars_os().map(read)
}

/// A name that is not Unicode is read as well as it can be, to be told.
pub(super) fn read((name, value): (OsString, OsString)) -> Variable {
    match name.into_string() {
        Ok(name) => (name, value.into_string().ok()),
        Err(name) => (name.to_string_lossy().into_owned(), None),
    }
}

/// Whether a variable is about a source.
pub fn is_of_source(name: &str) -> bool {
    const SOURCES: &str = "POSTRIDER__SOURCE__";
    name.get(..SOURCES.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(SOURCES))
}

/// Writes the variables into the tree.
pub fn apply(tree: &mut Node, shape: &Shape, variables: impl Iterator<Item = Variable>, findings: &mut Findings) {
    let ours = |(name, value): Variable| {
        let (prefix, rest) = name.split_at_checked(PREFIX.len())?;
        let segments: Vec<String> = rest.split(SEPARATOR).map(str::to_ascii_lowercase).collect();
        prefix.eq_ignore_ascii_case(PREFIX).then_some((segments, name, value))
    };
    let mut variables: Vec<_> = variables.filter_map(ours).collect();
    // The elements of a list come in the order of their numbers: 2 before 10.
    variables.sort_by_cached_key(|(segments, name, _)| {
        let order = |segment: &String| (segment.parse::<usize>().ok(), segment.clone());
        (segments.iter().map(order).collect::<Vec<_>>(), name.clone())
    });
    for (segments, name, value) in variables {
        let origin = Origin::Variable(name.as_str().into());
        match (resolve(tree, shape, &segments), value) {
            (Ok(target), Some(value)) => write(tree, target, &value, &origin, findings),
            (Ok(target), None) => findings.add(&origin, target.path, NOT_UNICODE),
            (Err(unknown), _) => findings.add(&origin, KeyPath::default(), &unknown.said(&segments)),
        }
    }
}

/// The key that a variable is for.
struct Target<'a> {
    path: KeyPath,
    shape: &'a Shape,
    /// Where a secret is found, if the variable says that instead of the secret itself: `file` or `env`.
    elsewhere: Option<&'a str>,
}

/// The segment of a variable's name that leads nowhere, and what to do.
struct Unknown {
    at: usize,
    instead: Instead,
}

enum Instead {
    /// One of these would be known.
    Names(Vec<String>),
    /// The name would have to end before this segment.
    Shorter,
    /// There is no such element of a list; the next free one is this.
    Index(usize),
    /// Several names in the file are written like this.
    Ambiguous(Vec<String>),
}

impl Unknown {
    fn said(&self, segments: &[String]) -> String {
        let variable = |segments: &[String]| variable(segments).escape_debug().to_string();
        let with = |segment: &str| {
            let mut segments = segments.to_vec();
            segments[self.at] = segment.to_owned();
            variable(&segments)
        };
        match &self.instead {
            Instead::Shorter => format!("there is no such setting; did you mean {}?", variable(&segments[..self.at])),
            Instead::Index(next) => {
                format!("the list has no such element; the next one is {}", with(&next.to_string()))
            }
            Instead::Ambiguous(names) => {
                format!("this could be any of {}; rename all but one in the file", names.join(" and "))
            }
            Instead::Names(names) => match nearest(&segments[self.at], names.iter().map(String::as_str)) {
                Some(near) => format!("there is no such setting; did you mean {}?", with(near)),
                None => {
                    format!("there is no such setting; after {} comes one of {}", variable(&segments[..self.at]), {
                        names.join(", ").to_uppercase()
                    })
                }
            },
        }
    }
}

fn resolve<'a>(tree: &Node, shape: &'a Shape, segments: &[String]) -> Result<Target<'a>, Unknown> {
    let mut target = Target { path: KeyPath::default(), shape, elsewhere: None };
    let mut node = Some(tree);
    for (at, segment) in segments.iter().enumerate() {
        let unknown = |instead| Unknown { at, instead };
        let step = match target.shape {
            Shape::Typed(_) if segment == TYPE => {
                target.shape = &Shape::Leaf(Leaf::Text);
                Step::Key(TYPE.to_owned())
            }
            Shape::Section(_) | Shape::Typed(_) | Shape::TextOr(_) => {
                let fields = target.shape.fields();
                let kind = matches!(target.shape, Shape::Typed(_)).then(|| TYPE.to_owned());
                let known = || Instead::Names(fields.iter().map(|field| field.name.clone()).chain(kind).collect());
                let field = fields.iter().find(|field| field.name == *segment).ok_or_else(|| unknown(known()))?;
                target.shape = &field.shape;
                Step::Key(field.name.clone())
            }
            Shape::Named(inner) => {
                target.shape = inner;
                Step::Key(name_for(segment, node.and_then(Node::table)).map_err(unknown)?)
            }
            Shape::List(inner) => {
                target.shape = inner;
                let length = node.map_or(0, |node| if let Value::List(list) = &node.value { list.len() } else { 0 });
                let index = segment.parse().ok().filter(|index| *index <= length);
                Step::Index(index.ok_or_else(|| unknown(Instead::Index(length)))?)
            }
            Shape::Leaf(Leaf::Secret) if at + 1 == segments.len() && (segment == "file" || segment == "env") => {
                target.elsewhere = Some(if segment == "file" { "file" } else { "env" });
                continue;
            }
            Shape::Leaf(_) => return Err(unknown(Instead::Shorter)),
        };
        node = node.and_then(|node| node.child(&step));
        target.path.0.push(step);
    }
    Ok(target)
}

/// The name in the file that a segment means: variables know neither capitals nor hyphens. A new name is lower-case.
fn name_for(segment: &str, table: Option<&Table>) -> Result<String, Instead> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '.'], "_");
    if table.is_some_and(|table| table.contains_key(segment)) {
        return Ok(segment.to_owned());
    }
    let wanted = plain(segment);
    let mut alike: Vec<String> =
        table.into_iter().flat_map(Table::keys).filter(|name| plain(name) == wanted).cloned().collect();
    match alike.len() {
        0 => Ok(segment.to_owned()),
        1 => Ok(alike.remove(0)),
        _ => Err(Instead::Ambiguous(alike)),
    }
}

fn write(tree: &mut Node, target: Target<'_>, text: &str, origin: &Origin, findings: &mut Findings) {
    let value = match target.elsewhere {
        None => match typed(text, target.shape, origin) {
            Ok(value) => value,
            Err(said) => return findings.add(origin, target.path, said),
        },
        Some(place) => {
            let node = Node { origin: origin.clone(), value: Value::Text(text.to_owned()) };
            Value::Table(Table::from([(place.to_owned(), Entry { key: origin.clone(), node })]))
        }
    };
    let slot = slot(tree, &target.path, origin);
    if let (Origin::Variable(other), false) = (&slot.origin, slot.origin == *origin) {
        let said = format!("{other} sets the same key; keep one of the two");
        return findings.add(origin, target.path, &said);
    }
    *slot = Node { origin: origin.clone(), value };
}

/// The node at a path, made if it is not there. What is on the way and cannot hold it gives way.
fn slot<'a>(tree: &'a mut Node, path: &KeyPath, origin: &Origin) -> &'a mut Node {
    let mut node = tree;
    for step in &path.0 {
        match (step, &node.value) {
            (Step::Key(_), Value::Table(_)) | (Step::Index(_), Value::List(_)) => {}
            (Step::Key(_), _) => node.value = Value::Table(Table::new()),
            (Step::Index(_), _) => node.value = Value::List(Vec::new()),
        }
        let fresh = || Node::empty(origin.clone());
        node = match (step, &mut node.value) {
            (Step::Key(key), Value::Table(table)) => {
                &mut table.entry(key.clone()).or_insert_with(|| Entry { key: origin.clone(), node: fresh() }).node
            }
            (Step::Index(index), Value::List(list)) => {
                if list.len() <= *index {
                    list.push(fresh());
                }
                let last = list.len() - 1;
                &mut list[(*index).min(last)]
            }
            _ => unreachable!("the node was made to fit the step"),
        };
    }
    node
}

/// Reads text as what is wanted. What cannot be read so stays text, and is refused like text in the file.
fn typed(text: &str, shape: &Shape, origin: &Origin) -> Result<Value, &'static str> {
    let trimmed = text.trim();
    let toml = |begin: char| trimmed.starts_with(begin).then(|| parse_value(trimmed, origin)).flatten();
    let plain = || Value::Text(text.to_owned());
    Ok(match shape {
        Shape::Leaf(Leaf::Boolean) => trimmed.to_ascii_lowercase().parse().map_or_else(|_| plain(), Value::Boolean),
        Shape::Leaf(Leaf::Integer) => trimmed.replace('_', "").parse().map_or_else(|_| plain(), Value::Integer),
        Shape::Leaf(Leaf::Number) => trimmed.parse().map_or_else(|_| plain(), Value::Float),
        Shape::Leaf(Leaf::Secret) => match toml('{') {
            Some(Value::Table(table))
                if table.len() == 1 && ["file", "env"].iter().any(|key| table.contains_key(*key)) =>
            {
                Value::Table(table)
            }
            _ => plain(),
        },
        Shape::TextOr(_) => toml('{').unwrap_or_else(plain),
        Shape::Leaf(_) => plain(),
        Shape::List(_) if trimmed.starts_with('[') => toml('[')
            .ok_or("this begins like a TOML list and is none; separate elements by commas, without brackets")?,
        Shape::List(_) if trimmed.is_empty() => Value::List(Vec::new()),
        Shape::List(inner) => {
            let element =
                |text: &str| typed(text.trim(), inner, origin).map(|value| Node { origin: origin.clone(), value });
            Value::List(trimmed.split(',').map(element).collect::<Result<_, _>>()?)
        }
        Shape::Section(_) | Shape::Typed(_) | Shape::Named(_) => toml('{')
            .ok_or("this is a table; set its keys one by one, by __ and the key's name, or write { key = value }")?,
    })
}

/// The variable for a key, with `NAME` and `0` where a name or a number goes.
pub fn variable(path: &[String]) -> String {
    format!("{PREFIX}{}", path.join(SEPARATOR).to_uppercase())
}
