//! Puts copies where `meta.referentialEqualities` says that one object was there several times.
//!
//! Superjson may write such an object once and null in its other places. Values here are trees, so each place gets a copy, and
//! what is copied has to be complete before: whatever is to be put inside it goes first. Copies of copies could grow without end
//! from a short text, so their sum has a limit.

use std::collections::{BTreeMap, BTreeSet};

use super::annotate::find;
use super::path::{Escapes, Path};
use super::{DEEPEST_TEXT, InvalidSuperjson, refuse};
use crate::Value;

/// How much may be copied in any case, in about bytes. Without nulls, what is copied is as long as the text at most at each level.
const ALLOWANCE: usize = 1 << 20;

pub(super) fn copy(
    value: &mut Value,
    equalities: &Value,
    escapes: Escapes,
    length: usize,
) -> Result<(), InvalidSuperjson> {
    let sources = read(equalities, escapes)?;
    let allowance = length.saturating_mul(4).saturating_add(ALLOWANCE);
    let mut copying = Copying { value, sources: &sources, done: BTreeSet::new(), allowance };
    sources.keys().try_for_each(|target| copying.fill(target, DEEPEST_TEXT))
}

/// The places of copies, and of what they are copies.
fn read(equalities: &Value, escapes: Escapes) -> Result<BTreeMap<Path, Path>, InvalidSuperjson> {
    let form = "meta.referentialEqualities of superjson is not of lists of paths by path";
    let groups = match equalities {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(groups) => Some(groups),
        Value::Array(parts) => match &parts[..] {
            [Value::Array(root)] if root.is_empty() => None,
            [Value::Array(root), Value::Object(groups)] if root.is_empty() => Some(groups),
            _ => return refuse("superjson says that the whole contains itself, which no value does"),
        },
        _ => return refuse(form),
    };
    let mut sources = BTreeMap::new();
    for (source, targets) in groups.into_iter().flatten() {
        let source = Path::parse(source, escapes)?;
        let Value::Array(targets) = targets else { return refuse(form) };
        let mut group = BTreeSet::from([source.clone()]);
        for target in targets {
            let Value::Text(target) = target else { return refuse(form) };
            group.insert(Path::parse(target, escapes)?);
        }
        // In order, a path comes right before those inside it.
        if let Some((outer, _)) = group.iter().zip(group.iter().skip(1)).find(|(outer, inner)| outer.contains(inner)) {
            return refuse(format!("superjson says that {outer} contains itself, which no value does"));
        }
        let targets = group.into_iter().filter(|target| *target != source);
        sources.extend(targets.map(|target| (target, source.clone())));
    }
    Ok(sources)
}

struct Copying<'a> {
    value: &'a mut Value,
    sources: &'a BTreeMap<Path, Path>,
    done: BTreeSet<&'a Path>,
    allowance: usize,
}

impl<'a> Copying<'a> {
    /// Puts a copy in its place, after those that go into what is copied.
    fn fill(&mut self, target: &'a Path, levels: usize) -> Result<(), InvalidSuperjson> {
        let Some(source) = self.sources.get(target).filter(|_| !self.done.contains(target)) else { return Ok(()) };
        // What contains itself by way of others goes round here until the levels are used up.
        let Some(levels) = levels.checked_sub(1) else {
            return refuse(format!("superjson says that {source} contains itself, or nests too deeply"));
        };
        for (inner, _) in self.sources.range(source..).take_while(|(inner, _)| source.contains(inner)) {
            self.fill(inner, levels)?;
        }
        self.put(source, target)?;
        self.done.insert(target);
        Ok(())
    }

    fn put(&mut self, source: &Path, target: &Path) -> Result<(), InvalidSuperjson> {
        let nothing = |path| InvalidSuperjson(format!("superjson says what {path} is equal to, and there is nothing"));
        let copied = find(self.value, source).ok_or_else(|| nothing(source))?;
        let Size { weight, levels } = Size::of(copied);
        self.allowance = match self.allowance.checked_sub(weight) {
            Some(rest) if levels + target.keys().len() <= DEEPEST_TEXT => rest,
            _ => return refuse(format!("superjson grows too large or too deep by copies of {source}")),
        };
        let copied = copied.clone();
        *find(self.value, target).ok_or_else(|| nothing(target))? = copied;
        Ok(())
    }
}

/// How large a value is, in about the bytes of its text, and how deeply it nests.
#[derive(Default)]
struct Size {
    weight: usize,
    levels: usize,
}

impl Size {
    fn of(value: &Value) -> Self {
        let leaf = |weight| Self { weight, levels: 0 };
        match value {
            Value::Text(text) => leaf(1 + text.len()),
            Value::Bytes(bytes) => Self { weight: 1 + bytes.len(), levels: 1 },
            Value::BigInt(number) => leaf(1 + number.bits() as usize / 8),
            Value::Array(items) | Value::Set(items) => Self::around(1, items),
            Value::Object(fields) => {
                let mut size = Self::around(1, fields.values());
                size.weight += fields.keys().map(String::len).sum::<usize>();
                size
            }
            Value::Map(rows) => Self::around(2, rows.iter().flat_map(|(key, value)| [key, value])),
            _ => leaf(1),
        }
    }

    fn around<'a>(levels: usize, items: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut size = Self { weight: 1, levels: 0 };
        for inner in items.into_iter().map(Self::of) {
            size.weight += inner.weight;
            size.levels = size.levels.max(inner.levels);
        }
        Self { levels: size.levels + levels, ..size }
    }
}
