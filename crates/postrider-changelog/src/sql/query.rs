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

/// Runs statements with sqlx, the same on each database: what fetches and executes for its dialect. `cell` reads a column of a
/// row as text.
macro_rules! run_with_sqlx {
    ($connection:ty, $cell:expr) => {
        async fn fetch(
            connection: &mut $connection,
            query: &$crate::sql::Query,
        ) -> Result<Vec<$crate::sql::Row>, $crate::sql::Failed> {
            Ok(Self::fetch_some(connection, query, usize::MAX).await?.0)
        }

        async fn fetch_some(
            connection: &mut $connection,
            query: &$crate::sql::Query,
            bytes: usize,
        ) -> Result<(Vec<$crate::sql::Row>, bool), $crate::sql::Failed> {
            let mut found = $crate::sql::bound!(query).fetch(connection);
            let (mut rows, mut size) = (Vec::new(), 0);
            while let Some(row) = futures::TryStreamExt::try_next(&mut found).await.map_err(Self::failed)? {
                // The first may be the entry that a cursor is at, so that a page has one more at least.
                if size >= bytes && rows.len() > 1 {
                    return Ok((rows, false));
                }
                let cells = (0..sqlx::Row::len(&row)).map(|at| $cell(&row, at));
                let cells = cells.collect::<Result<$crate::sql::Row, _>>().map_err(Self::failed)?;
                size += cells.iter().flatten().map(String::len).sum::<usize>();
                rows.push(cells);
            }
            Ok((rows, true))
        }

        async fn execute(connection: &mut $connection, query: &$crate::sql::Query) -> Result<u64, $crate::sql::Failed> {
            let done = $crate::sql::bound!(query).execute(connection).await.map_err(Self::failed)?;
            Ok(done.rows_affected())
        }
    };
}
pub(crate) use run_with_sqlx;

/// A statement of sqlx with its parameters.
macro_rules! bound {
    ($query:expr) => {{
        let statement = sqlx::query(sqlx::AssertSqlSafe($query.sql.clone())).persistent($query.persistent);
        $query.arguments.iter().fold(statement, |statement, argument| match argument {
            $crate::sql::Argument::Text(text) => statement.bind(text.as_deref()),
            $crate::sql::Argument::Whole(number) => statement.bind(*number),
            $crate::sql::Argument::Float(number) => statement.bind(*number),
            $crate::sql::Argument::Boolean(yes) => statement.bind(*yes),
            $crate::sql::Argument::Bytes(bytes) => statement.bind(bytes.as_deref()),
        })
    }};
}
pub(crate) use bound;
