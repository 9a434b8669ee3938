//! What is wrong with a configuration, and where. No text here ever repeats a value that may be a secret.

use std::fmt;
use std::sync::Arc;

/// The most problems that are listed; whoever has more will not read them.
const MOST: usize = 100;

/// Where something in a configuration comes from. The whole comes first, then the file from its top, then variables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The configuration as a whole: its file, the environment or the command line.
    Whole(Arc<str>),
    /// A line and column of the file, both from 1.
    File {
        /// The file, as it was named to us.
        file: Arc<str>,
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// An environment variable.
    Variable(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            // Anything may be in the name of a variable, also what moves a terminal's cursor.
            Self::Variable(name) => write!(f, "{}", name.escape_debug()),
            Self::Whole(name) => f.write_str(name),
        }
    }
}

/// One step from a table or list to what is in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The value of a key.
    Key(String),
    /// The element at an index, from 0.
    Index(usize),
}

/// The path of a key, such as `source.shop.lease` or `route[0].sink`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyPath(pub Vec<Step>);

/// As it is displayed: a key may be a secret in the wrong place.
impl fmt::Debug for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl KeyPath {
    /// The path of a key under this one.
    pub fn key(&self, name: &str) -> Self {
        self.with(Step::Key(name.to_owned()))
    }

    /// The path of an element under this one.
    pub fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// The source, sink, route or other section that it belongs to.
    pub fn section(&self) -> &[Step] {
        let named =
            matches!(self.0.first(), Some(Step::Key(key)) if ["source", "layout", "sink", "route"].contains(&&**key));
        &self.0[..self.0.len().min(if named { 2 } else { 1 })]
    }
}

impl<const N: usize> From<[&str; N]> for KeyPath {
    fn from(keys: [&str; N]) -> Self {
        Self(keys.map(|key| Step::Key(key.to_owned())).into())
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    f.write_str(if at > 0 { "." } else { "" })?;
                    match key {
                        key if !key.is_empty() && key.chars().all(is_plain) => f.write_str(key)?,
                        // A value that got in front of the equals sign, perhaps a secret.
                        key if key.chars().count() > 40 || key.contains([':', '/', '@', '=', '+']) => {
                            f.write_str("…")?
                        }
                        key => write!(f, "{key:?}")?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// One thing that is wrong, or questionable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: Place,
    /// The key that it is about; empty if it is the configuration as a whole.
    pub path: KeyPath,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.path.0.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

/// A configuration that cannot be used, with all that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong, one by one.
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub more: usize,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            f.write_str(if at > 0 { "\n" } else { "" })?;
            problem.fmt(f)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Refused {}

/// Where a value was found. It becomes a [`Place`] only when something is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A byte of the file.
    Offset(usize),
    /// An environment variable.
    Variable(Arc<str>),
    /// Nowhere in particular.
    Whole,
}

/// Collects problems, and finds their places in the text.
pub struct Findings<'a> {
    name: Arc<str>,
    text: &'a str,
    problems: Vec<Problem>,
    more: usize,
}

impl<'a> Findings<'a> {
    /// For the text of a file, or no text and what else the configuration comes from.
    pub fn new(name: &str, text: &'a str) -> Self {
        Self { name: name.into(), text, problems: Vec::new(), more: 0 }
    }

    /// Notes a problem. `said` is what is wrong and, after a semicolon, what to do.
    pub fn add(&mut self, origin: &Origin, path: KeyPath, said: &str) {
        if self.problems.len() == MOST {
            self.more += 1;
            return;
        }
        let (what, suggestion) = match said.split_once("; ") {
            Some((what, suggestion)) => (what, Some(suggestion.to_owned())),
            None => (said, None),
        };
        let problem = Problem { place: self.place(origin), path, what: what.to_owned(), suggestion };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn place(&self, origin: &Origin) -> Place {
        match origin {
            Origin::Whole => Place::Whole(self.name.clone()),
            Origin::Variable(name) => Place::Variable(name.clone()),
            Origin::Offset(offset) => {
                let before = self.text.get(..*offset).unwrap_or(self.text);
                let line_start = before.rfind('\n').map_or(0, |at| at + 1);
                Place::File {
                    file: self.name.clone(),
                    line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
                    // A byte order mark is no character to whoever edits the file.
                    column: before[line_start..].trim_start_matches('\u{feff}').chars().count() + 1,
                }
            }
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether there is no room for more.
    pub fn is_full(&self) -> bool {
        self.problems.len() == MOST
    }

    /// The paths of what was found.
    pub fn paths(&self) -> Vec<KeyPath> {
        self.problems.iter().map(|problem| problem.path.clone()).collect()
    }

    /// The problems as a refusal.
    pub fn refused(mut self) -> Refused {
        self.problems.sort_by(|one, other| one.place.cmp(&other.place));
        Refused { problems: self.problems, more: self.more }
    }

    /// The problems as warnings.
    pub fn into_warnings(mut self) -> Vec<Problem> {
        self.problems.sort_by(|one, other| one.place.cmp(&other.place));
        self.problems
    }
}
