//! What an inbox needs of a database.

/// A database that has an inbox: `sqlx::Postgres`, `sqlx::MySql` or `sqlx::Sqlite`, if its feature is on.
pub trait Database: sealed::Dialect {}

impl<DB: sealed::Dialect> Database for DB {}

pub(crate) mod sealed {
    use std::future::Future;

    use crate::InboxError;
    use crate::sql::enter::Entered;
    use crate::sql::statements::Statements;
    use crate::sql::tables::OfEach;
    use crate::sql::{Failed, InboxTables, Kind, Numbers, Statement, Templates, Value};

    /// What differs between databases.
    pub trait Dialect: sqlx::Database {
        /// The SQL.
        const TEMPLATES: Templates;
        /// How a transaction begins that is going to write, if a plain one would not do.
        const BEGIN: Option<&'static str> = None;
        /// What makes a rollback possible after the database has ended a transaction by itself, if the driver needs one.
        const REOPEN: Option<&'static str> = None;
        /// The only schema that may be said, if no other will do.
        const ONLY_SCHEMA: Option<&'static str> = None;
        /// Whether to look for a processed event before a transaction is begun, because there is one writer at a time.
        const LOOK_FIRST: bool = false;

        /// Runs a statement and answers its rows.
        fn ask(
            connection: &mut Self::Connection,
            statement: &Statement,
            values: &[Value<'_>],
        ) -> impl Future<Output = Result<Vec<Numbers>, Failed>> + Send;

        /// Runs a statement and answers how many rows it changed.
        fn change(
            connection: &mut Self::Connection,
            statement: &Statement,
            values: &[Value<'_>],
        ) -> impl Future<Output = Result<u64, Failed>> + Send;

        /// Its statements.
        fn statements(of_each: &OfEach) -> &Statements;

        /// What an `enter.sql` that is done says.
        fn entered(rows: &[Numbers]) -> Entered;

        /// Makes the tables, whoever else does so at the moment.
        fn create(
            connection: &mut Self::Connection,
            tables: &InboxTables,
        ) -> impl Future<Output = Result<(), InboxError>> + Send;

        /// Sorts an error.
        fn kind(error: &sqlx::Error) -> Kind;

        /// An error with its kind.
        fn failed(error: sqlx::Error) -> Failed {
            Failed::new(Self::kind(&error), error)
        }
    }
}
