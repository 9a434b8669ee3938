//! A statement with its parameters.

use std::sync::Arc;

use super::Dialect;

/// What a parameter is. The kind depends on where it stands and not on the value, so that a statement is prepared once.
#[derive(Clone, PartialEq)]
pub enum Argument {
    Text(Option<String>),
    Whole(Option<i64>),
    Float(Option<f64>),
    Boolean(Option<bool>),
    Bytes(Option<Vec<u8>>),
}

impl Argument {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Some(text.into()))
    }

    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(Some(bytes.into()))
    }
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Whole(Some(number))
    }
}

/// A row: every column as text.
pub type Row = Vec<Option<String>>;

/// A statement with its parameters.
pub struct Query {
    pub sql: Arc<str>,
    pub arguments: Vec<Argument>,
    /// Whether the connection keeps it prepared.
    pub persistent: bool,
}

/// A statement that is being put together.
#[derive(Default)]
pub struct Draft {
    arguments: Vec<Argument>,
}

impl Draft {
    /// Adds a parameter and answers how it is written.
    pub fn bind<DB: Dialect>(&mut self, argument: Argument) -> String {
        self.arguments.push(argument);
        DB::placeholder(self.arguments.len())
    }

    pub fn finish(self, sql: String, persistent: bool) -> Query {
        Query { sql: sql.into(), arguments: self.arguments, persistent }
    }
}
