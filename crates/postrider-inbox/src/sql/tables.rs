//! Where an inbox lives in its database, and its settings.

use std::sync::Arc;
use std::time::Duration;

use postrider_store::names::check;
use sqlx::Pool;

use super::database::Database;
use super::enter::ConsumerTransaction;
use super::statements::Statements;
use crate::keep::keep_problem;
use crate::{DEFAULT_KEEP, Delivery, Entry, InboxError};

/// The longest ending that is added to a table's name, for an index.
const LONGEST_SUFFIX: &str = "_expires_idx";

/// What becomes of a delivery while a transaction of another one has the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Meanwhile {
    /// It is told so, [`Entry::InProgress`], and the broker brings it again. The default, because a consumer that waits
    /// handles nothing else and holds a connection.
    ///
    /// PostgreSQL and MariaDB answer at once. MySQL cannot: it answers after the session's `innodb_lock_wait_timeout`, so
    /// set that to 1 on the consumer's connections. SQLite has one writer at a time and answers after the connection's busy
    /// time-out, whichever event the other one has. A program that inserts without PostgreSQL's advisory lock, or with
    /// [`Wait`](Self::Wait), is waited for.
    #[default]
    Answer,
    /// It waits for the end of that transaction, and is the first if that was rolled back. For as long as the database lets
    /// it: after MySQL's `innodb_lock_wait_timeout` or SQLite's busy time-out the answer is [`Entry::InProgress`];
    /// PostgreSQL's `lock_timeout` ends the transaction with [`InboxError::Conflict`].
    ///
    /// Each one that waits holds a connection of the pool.
    ///
    /// On PostgreSQL it takes no advisory lock, so any number of events may be entered in one transaction; with
    /// [`Answer`](Self::Answer) each takes a place in the server's table of locks until the transaction ends.
    Wait,
}

/// The two tables of an inbox, and its settings. Cheap to clone; make one and keep it.
///
/// [`enter`](Self::enter) is for consumers that have a transaction of their own:
///
/// ```
/// # #[cfg(feature = "postgres")]
/// # async fn on_message(tables: postrider_inbox::InboxTables, pool: sqlx::PgPool, delivery: postrider_inbox::Delivery) -> Result<bool, Box<dyn std::error::Error>> {
/// use postrider_inbox::Entry;
///
/// let mut transaction = pool.begin().await?;
/// let may_ack = match tables.enter(&mut transaction, &delivery).await? {
///     Entry::First(()) => {
///         sqlx::query("update stock set pieces = pieces - 1").execute(&mut *transaction).await?;
///         true
///     }
///     Entry::AlreadyProcessed => true,
///     Entry::InProgress(_) | Entry::Stale { .. } => false,
/// };
/// transaction.commit().await?;
/// // Acknowledge the message now, if it may be.
/// # Ok(may_ack)
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct InboxTables(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    statements: OfEach,
}

/// The statements for each database.
#[derive(Debug)]
pub struct OfEach {
    #[cfg(feature = "mysql")]
    pub mysql: Statements,
    #[cfg(feature = "postgres")]
    pub postgres: Statements,
    #[cfg(feature = "sqlite")]
    pub sqlite: Statements,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub schema: Option<String>,
    pub messages: String,
    pub attempts: String,
    pub keep: Duration,
    pub meanwhile: Meanwhile,
    pub behind_pooler: bool,
    pub redelivery_horizon: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            schema: None,
            messages: "inbox_messages".into(),
            attempts: "inbox_attempts".into(),
            keep: DEFAULT_KEEP,
            meanwhile: Meanwhile::default(),
            behind_pooler: false,
            redelivery_horizon: None,
        }
    }
}

impl Default for InboxTables {
    /// `inbox_messages` and `inbox_attempts`, on PostgreSQL in the schema `public`, on MySQL in the connection's database.
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl InboxTables {
    fn new(settings: Settings) -> Self {
        let statements = OfEach {
            #[cfg(feature = "mysql")]
            mysql: Statements::render(&<sqlx::MySql as super::Dialect>::TEMPLATES, &settings),
            #[cfg(feature = "postgres")]
            postgres: Statements::render(&<sqlx::Postgres as super::Dialect>::TEMPLATES, &settings),
            #[cfg(feature = "sqlite")]
            sqlite: Statements::render(&<sqlx::Sqlite as super::Dialect>::TEMPLATES, &settings),
        };
        Self(Arc::new(Inner { settings, statements }))
    }

    /// Other names or settings than the default ones.
    pub fn builder() -> InboxTablesBuilder {
        InboxTablesBuilder::default()
    }

    /// Enters an event in the consumer's own transaction. It counts as processed if and only if that commits.
    ///
    /// Write the effect in the same transaction if the answer is [`Entry::First`], and acknowledge the message after the
    /// commit. The transaction stays usable after every answer; after an error roll it back. A statement that fails in it
    /// must not be passed over: PostgreSQL then answers a commit with a silent rollback, and MySQL goes on without a
    /// transaction after a deadlock. [`SqlInbox`](crate::SqlInbox)'s guard looks for that.
    ///
    /// If the delivery has an attempt, only the check is made here; note it before the transaction with
    /// [`SqlInbox::note_attempt`](crate::SqlInbox::note_attempt).
    ///
    /// A second `enter` of the same event in one transaction answers [`Entry::AlreadyProcessed`]. If the effect is written
    /// after a savepoint, enter the event after it too, so that both are undone together; otherwise call
    /// [`leave`](Self::leave). It is not cancel-safe: if the future is dropped, roll the transaction back.
    pub async fn enter<T: ConsumerTransaction>(
        &self,
        transaction: T,
        delivery: &Delivery,
    ) -> Result<Entry<()>, InboxError> {
        transaction.enter(self, delivery).await
    }

    /// Takes back an event that was entered in this transaction, because its effect was undone to a savepoint and the rest
    /// is going to be committed. Call it only for an event that [`enter`](Self::enter) has answered with [`Entry::First`]
    /// in the same transaction.
    pub async fn leave<T: ConsumerTransaction>(&self, transaction: T, delivery: &Delivery) -> Result<(), InboxError> {
        transaction.leave(self, delivery).await
    }

    /// Makes the tables unless they are there. Any number of processes may do so at once.
    pub async fn migrate<DB: Database>(&self, pool: &Pool<DB>) -> Result<(), InboxError> {
        let mut connection = pool.acquire().await.map_err(DB::failed)?;
        DB::create(&mut connection, self).await
    }

    /// The SQL that makes the tables, for teams that run their migrations with a tool of their own. It can be run again.
    pub fn script<DB: Database>(&self) -> String {
        let schema = match (&self.0.settings.schema, DB::TEMPLATES.schema) {
            (Some(schema), Some(_)) => Some(format!("create schema if not exists \"{schema}\";\n")),
            _ => None,
        };
        let tables = self.rendered::<DB>().create.iter().map(|sql| format!("{sql};\n"));
        schema.into_iter().chain(tables).collect::<Vec<_>>().join("\n")
    }

    /// How long a processed event is remembered.
    pub fn keep(&self) -> Duration {
        self.0.settings.keep
    }

    /// The schema, if one was given.
    pub fn schema(&self) -> Option<&str> {
        self.0.settings.schema.as_deref()
    }

    /// The table of processed events, without its schema.
    pub fn messages(&self) -> &str {
        &self.0.settings.messages
    }

    /// The table of attempts, without its schema.
    pub fn attempts(&self) -> &str {
        &self.0.settings.attempts
    }

    /// Every statement for a database, for tests that prepare or explain them.
    #[doc(hidden)]
    pub fn texts<DB: Database>(&self) -> Vec<(&'static str, postrider_store::sql::Sql)> {
        self.rendered::<DB>().all()
    }

    /// The statements for a database, unless it cannot have such tables.
    pub(crate) fn statements<DB: Database>(&self) -> Result<&Statements, InboxError> {
        if let (Some(schema), Some(only)) = (self.schema(), DB::ONLY_SCHEMA)
            && schema != only
        {
            return Err(InboxError::Config(format!(
                "the inbox is in the attached database {schema:?}, where a crash may part it from the effect; put it in the file of the effects, without a schema"
            )));
        }
        Ok(self.rendered::<DB>())
    }

    fn rendered<DB: Database>(&self) -> &Statements {
        DB::statements(&self.0.statements)
    }

    /// Whether an event may be remembered for such a time.
    pub(super) fn check_keep(&self, keep: Duration) -> Result<(), InboxError> {
        keep_problem(keep, self.0.settings.redelivery_horizon)
            .map_or(Ok(()), |problem| Err(InboxError::Config(problem)))
    }
}

/// Settings of an inbox; see [`InboxTables::builder`].
#[derive(Debug, Clone, Default)]
pub struct InboxTablesBuilder {
    settings: Settings,
}

impl InboxTablesBuilder {
    /// The schema of both tables. On MySQL that is another name for a database. On SQLite only `main` will do: an attached
    /// database is a file of its own, and a crash may leave it committed without the effect, or the other way round.
    pub fn schema(mut self, schema: &str) -> Self {
        self.settings.schema = Some(schema.into());
        self
    }

    /// The table of processed events, `inbox_messages` by default.
    pub fn messages(mut self, table: &str) -> Self {
        self.settings.messages = table.into();
        self
    }

    /// The table of attempts, `inbox_attempts` by default.
    pub fn attempts(mut self, table: &str) -> Self {
        self.settings.attempts = table.into();
        self
    }

    /// How long a processed event is remembered, [`DEFAULT_KEEP`] by default. Also what a program gets that inserts
    /// without saying so, if the tables are made with this setting.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.settings.keep = keep;
        self
    }

    /// For how long after its first delivery the broker, or an operator's replay, may bring an event again. An event must
    /// be remembered for longer than that.
    pub fn redelivery_horizon(mut self, horizon: Duration) -> Self {
        self.settings.redelivery_horizon = Some(horizon);
        self
    }

    /// What becomes of a delivery while another one of the same event is handled.
    pub fn meanwhile(mut self, meanwhile: Meanwhile) -> Self {
        self.settings.meanwhile = meanwhile;
        self
    }

    /// Says that a pooler in transaction mode (PgBouncer) is between the consumer and PostgreSQL: sqlx then prepares no
    /// statement by name.
    pub fn behind_pooler(mut self, yes: bool) -> Self {
        self.settings.behind_pooler = yes;
        self
    }

    /// Checks the names and settings.
    pub fn build(self) -> Result<InboxTables, InboxError> {
        let Settings { schema, messages, attempts, keep, .. } = &self.settings;
        if let Some(schema) = schema {
            name("schema", schema, "")?;
        }
        name("table of messages", messages, LONGEST_SUFFIX)?;
        name("table of attempts", attempts, LONGEST_SUFFIX)?;
        if messages == attempts {
            return Err(InboxError::Config(format!("both tables are called {messages:?}; give one another name")));
        }
        if keep.as_secs() == 0 {
            return Err(InboxError::Config(format!(
                "processed events are to be kept for {keep:?}; use a time of one second or more"
            )));
        }
        if let Some(problem) = keep_problem(*keep, self.settings.redelivery_horizon) {
            return Err(InboxError::Config(problem));
        }
        Ok(InboxTables::new(self.settings))
    }
}

fn name(what: &'static str, name: &str, suffix: &str) -> Result<(), InboxError> {
    check(what, name, suffix).map_err(|error| InboxError::Config(error.to_string()))
}

/// A time as databases take it.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: InboxTablesBuilder) -> String {
        let error = builder.build().expect_err("it is refused");
        assert!(matches!(error, InboxError::Config(_)), "{error:?}");
        error.to_string()
    }

    #[test]
    fn s01_nothing_that_could_leave_its_quotes_is_a_name() {
        for bad in ["", "a b", "a\"b", "a`b", "a'b", "a;drop table x", "a.b", "Ab", "ä", "1a", "pg_x", "{now}", "a\0"]
        {
            for builder in [
                InboxTables::builder().schema(bad),
                InboxTables::builder().messages(bad),
                InboxTables::builder().attempts(bad),
            ] {
                refused(builder);
            }
        }
        assert!(refused(InboxTables::builder().messages(&"t".repeat(52))).contains("51"));
        assert!(refused(InboxTables::builder().attempts("inbox_messages")).contains("another name"));
        assert!(InboxTables::builder().schema("shop").messages(&"t".repeat(51)).attempts("seen").build().is_ok());
    }

    #[test]
    fn an_event_must_be_remembered_for_as_long_as_it_may_come_again() {
        let hour = Duration::from_secs(3600);
        let said = refused(InboxTables::builder().keep(hour).redelivery_horizon(hour * 2));
        assert!(said.contains("3600s") && said.contains("7200s") && said.contains("keep"), "{said}");
        assert!(InboxTables::builder().keep(hour).redelivery_horizon(hour).build().is_ok());
        assert!(refused(InboxTables::builder().redelivery_horizon(DEFAULT_KEEP + hour)).contains("handled again"));
        assert!(refused(InboxTables::builder().keep(Duration::ZERO)).contains("one second"));
        assert!(refused(InboxTables::builder().keep(Duration::MAX)).contains("years"));
    }
}
