//! What a changelog needs of a database.

/// A database that has a changelog: `sqlx::Postgres`, `sqlx::MySql` or `sqlx::Sqlite`, if its feature is on.
pub trait Database: sealed::Dialect {}

impl<DB: sealed::Dialect> Database for DB {}

pub(crate) mod sealed {
    use std::future::Future;
    use std::ops::RangeInclusive;

    use postrider_store::Names;

    use crate::TransactionVersion;
    use crate::schema::ColumnKind;
    use crate::sql::{Failed, Kind, Query, Row, Statements, Templates};

    /// What differs between databases. Every column is read as text, so that one piece of code understands them all.
    pub trait Dialect: sqlx::Database {
        /// The SQL.
        const TEMPLATES: Templates;
        /// What stands around an identifier.
        const QUOTE: char;
        /// Whether insert and update answer the rows that they wrote.
        const RETURNING: bool;
        /// What locks a row that is looked at until the transaction ends.
        const LOCK: &'static str;
        /// Whether a column of floating-point numbers can hold NaN and the infinities.
        const NOT_FINITE: bool;
        /// The times that it can hold, in milliseconds since 1970.
        const TIMES: RangeInclusive<i64> = i64::MIN..=i64::MAX;
        /// Whether parameters have numbers, so that one can be used twice.
        const NUMBERED: bool = true;
        /// How a transaction begins that is going to write, if a plain one would not do.
        const BEGIN: Option<&'static str>;

        /// Puts names into a template.
        fn render(names: &Names, template: &str) -> String;

        /// How the parameter of this number, from 1, is written.
        fn placeholder(number: usize) -> String;

        /// What a column of this kind is set to, if the parameter is written so.
        fn written(kind: ColumnKind, placeholder: &str) -> String;

        /// What reads a column of this kind as text.
        fn read(kind: ColumnKind, column: &str) -> String;

        /// A condition: a number is one of a JSON list of numbers.
        fn one_of(column: &str, placeholder: &str) -> String;

        /// A condition: an external id is exactly the one that `bind` makes a parameter of.
        fn identified(kind: ColumnKind, column: &str, bind: impl FnMut() -> String) -> String;

        /// A subquery, so that it may look at the table that is being written.
        fn subquery(select: &str) -> String {
            format!("({select})")
        }

        /// Runs a statement and answers its rows.
        fn fetch(
            connection: &mut Self::Connection,
            query: &Query,
        ) -> impl Future<Output = Result<Vec<Row>, Failed>> + Send;

        /// Runs a statement and answers its rows until they have so many bytes, two at least, and whether that was all.
        fn fetch_some(
            connection: &mut Self::Connection,
            query: &Query,
            bytes: usize,
        ) -> impl Future<Output = Result<(Vec<Row>, bool), Failed>> + Send;

        /// Runs a statement and answers how many rows it found and changed.
        fn execute(
            connection: &mut Self::Connection,
            query: &Query,
        ) -> impl Future<Output = Result<u64, Failed>> + Send;

        /// Inserts or updates a row; answers how many were written, and the number that the database has counted for it, if it says so.
        fn write(
            connection: &mut Self::Connection,
            query: &Query,
        ) -> impl Future<Output = Result<(u64, Option<u64>), Failed>> + Send {
            async { Ok((Self::execute(connection, query).await?, None)) }
        }

        /// Takes the next transaction version and answers it, or `None` if there is none left, with the time in
        /// milliseconds since 1970.
        fn reserve(
            connection: &mut Self::Connection,
            statements: &Statements,
        ) -> impl Future<Output = Result<(Option<TransactionVersion>, i64), Failed>> + Send;

        /// Sorts an error.
        fn kind(error: &sqlx::Error) -> Kind;

        /// An error with its kind.
        fn failed(error: sqlx::Error) -> Failed {
            Failed::new(Self::kind(&error), error)
        }

        /// An identifier in its quotes.
        fn quoted(name: &str) -> String {
            let quote = Self::QUOTE;
            format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")))
        }
    }
}
