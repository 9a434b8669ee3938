//! Where something is in a value: keys and indexes from the outside in.

use std::fmt;

use super::{InvalidSuperjson, refuse};

/// Keys that lead out of an object in JavaScript, which superjson refuses for that reason.
const FORBIDDEN: [&str; 3] = ["__proto__", "constructor", "prototype"];

/// What has a backslash before it in a written path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// Version 0: a backslash before anything but a dot is itself.
    Dots,
    /// Version 1.
    DotsAndBackslashes,
}

/// The place of a value. Its text is what superjson writes; that of the outermost value is "the whole".
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(Vec<String>);

impl Path {
    /// Reads a written path.
    pub(super) fn parse(text: &str, escapes: Escapes) -> Result<Self, InvalidSuperjson> {
        let mut path = vec![String::new()];
        let mut chars = text.chars().peekable();
        while let Some(mut next) = chars.next() {
            let escaped = next == '\\'
                && match (chars.peek(), escapes) {
                    (Some('.'), _) | (Some('\\'), Escapes::DotsAndBackslashes) => true,
                    (_, Escapes::Dots) => false,
                    _ => {
                        return refuse(format!(
                            "the path {text:?} in meta of superjson has a backslash before neither a dot nor a backslash"
                        ));
                    }
                };
            if escaped {
                next = chars.next().unwrap_or(next);
            }
            match path.last_mut() {
                Some(key) if escaped || next != '.' => key.push(next),
                _ => path.push(String::new()),
            }
        }
        let path = Self(path);
        path.check()?;
        Ok(path)
    }

    /// Refuses keys that lead out of an object in JavaScript.
    pub(super) fn check(&self) -> Result<(), InvalidSuperjson> {
        match self.0.iter().find(|key| FORBIDDEN.contains(&key.as_str())) {
            Some(key) => refuse(format!("{self} has the key {key}, which superjson does not allow")),
            None => Ok(()),
        }
    }

    /// Does something one key further in.
    pub(crate) fn below<T>(&mut self, key: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        self.0.push(key.to_owned());
        let done = work(self);
        self.0.pop();
        done
    }

    /// This path and then another.
    pub(super) fn join(&self, other: Self) -> Self {
        Self(self.0.iter().cloned().chain(other.0).collect())
    }

    /// Whether it is this place or one inside it.
    pub(super) fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    pub(super) fn keys(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("the whole"),
            false => f.write_str(&self.0.iter().map(|key| escape(key)).collect::<Vec<_>>().join(".")),
        }
    }
}

/// A key as it is written in a path.
pub(super) fn escape(key: &str) -> String {
    key.replace('\\', r"\\").replace('.', r"\.")
}
