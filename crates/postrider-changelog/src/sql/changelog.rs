//! Writing to a changelog: units of work, and entries of the caller's own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use postrider_store::Names;
use sqlx::{Connection, Pool, SqlSafeStr, Transaction};
use uuid::Uuid;

use super::apply::{self, Doing, MOST_MUTATIONS};
use super::{Argument, Database, Failed, Kind, Row, Statements};
use crate::schema::{Table, invalid};
use crate::unit_of_work::{Id, UnitOfWork, check_id};
use crate::{Change, ChangelogError, Date, Payload, TransactionVersion, Versionstamp};

/// The changelog of a database. Cheap to clone.
///
/// It is off until [`enabled`](Self::enabled) says otherwise: units of work are then committed without an entry, at no cost.
/// Reading works either way. Its tables come with the migrations of the store.
///
/// ```
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool, blog: postrider_changelog::Schema) -> Result<(), Box<dyn std::error::Error>> {
/// use postrider_changelog::{After, Changelog, Reader, UnitOfWork};
///
/// let changelog = Changelog::new(pool, Default::default()).enabled(true);
/// let mut work = UnitOfWork::new();
/// work.create(&blog.table("users")?, [("name", "Ada".into())])?;
/// let committed = changelog.commit(&work).await?;
/// println!("committed at {:?}", committed.versionstamp);
///
/// for entry in changelog.list(After::Beginning, 100).await?.entries {
///     println!("{} changed {} rows", entry.versionstamp, entry.payload()?.mutations.len());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Changelog<DB: Database> {
    pub(super) pool: Pool<DB>,
    names: Names,
    pub(super) statements: Arc<Statements>,
    enabled: bool,
}

/// What became of a unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// Its entry, if there is one.
    pub versionstamp: Option<Versionstamp>,
    /// The rows that were created and are still there, in their order, with their versions after the last operation, and with
    /// their internal ids if the database said them.
    pub created: Vec<Id>,
}

/// A transaction's place in the order of commits, from [`Changelog::reserve`]. Nobody else writes to the changelog until the
/// transaction ends.
#[derive(Debug)]
#[must_use = "append to it, or the transaction keeps other writers waiting for nothing"]
pub struct Reservation {
    version: Option<TransactionVersion>,
    now: Option<Date>,
}

impl Reservation {
    /// The transaction version, unless the changelog is off.
    pub fn version(&self) -> Option<TransactionVersion> {
        self.version
    }

    /// The database's time when it was made, unless the changelog is off.
    pub fn now(&self) -> Option<Date> {
        self.now
    }
}

impl<DB: Database> Changelog<DB> {
    /// The changelog in the database of this pool, by the names that the store was migrated with.
    pub fn new(pool: Pool<DB>, names: Names) -> Self {
        let statements = Statements::render::<DB>(&names, true);
        Self { pool, names, statements, enabled: false }
    }

    /// Says whether units of work leave entries.
    pub fn enabled(mut self, yes: bool) -> Self {
        self.enabled = yes;
        self
    }

    /// Says that a pooler in transaction mode (PgBouncer) is between us and PostgreSQL: statements are then not kept prepared.
    pub fn behind_pooler(mut self, yes: bool) -> Self {
        self.statements = Statements::render::<DB>(&self.names, !yes);
        self
    }

    /// Whether units of work leave entries.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The pool.
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Commits a unit of work in a transaction of its own, with its entry if the changelog is enabled. If it fails nothing was
    /// written, and it can be committed again; only after [`ChangelogError::Unavailable`] it may have been done, and committing
    /// it again answers [`ChangelogError::AlreadyCommitted`] if it was. Where nothing leaves an entry, because the changelog is
    /// off or all tables are internal, nobody can know that.
    ///
    /// If the future is dropped the transaction is rolled back, unless it was at its commit.
    pub async fn commit(&self, work: &UnitOfWork) -> Result<Committed, ChangelogError> {
        self.check(work)?;
        if work.is_empty() {
            return Ok(Committed { versionstamp: None, created: Vec::new() });
        }
        let mut transaction = self.begin().await?;
        let failed = match self.apply_to(&mut transaction, work).await {
            Ok(committed) => match transaction.commit().await {
                Ok(()) => return Ok(committed),
                Err(error) => return Err(DB::failed(error).into()),
            },
            Err(failed) => failed,
        };
        let _ = transaction.rollback().await;
        // It may be the second try of one whose answer was lost: then its rows are there already, or have moved on.
        let repeated = matches!(
            failed,
            ChangelogError::VersionConflict { .. }
                | ChangelogError::Missing { .. }
                | ChangelogError::Unresolved { .. }
                | ChangelogError::AlreadyCommitted { .. }
                | ChangelogError::Constraint { .. }
                | ChangelogError::Failed(_)
        );
        if !self.enabled || !repeated {
            return Err(failed);
        }
        match (self.find(work.id()).await?, failed) {
            (None, ChangelogError::AlreadyCommitted { .. }) => Err(behind()),
            (None, failed) => Err(failed),
            (versionstamp, _) => Err(ChangelogError::AlreadyCommitted { uow_id: work.id().to_owned(), versionstamp }),
        }
    }

    /// Does a unit of work in a transaction of the caller's own, before its other statements: the reservation is to be the
    /// first one. It is committed if and only if that transaction is. If it fails it is undone as a whole, to a savepoint, and
    /// the transaction goes on without it, unless the error is [`Conflict`](ChangelogError::Conflict) or
    /// [`Unavailable`](ChangelogError::Unavailable): then roll it back.
    ///
    /// On SQLite begin it with `begin immediate`. On PostgreSQL under REPEATABLE READ or SERIALIZABLE, a writer that had to wait
    /// gets [`ChangelogError::Conflict`]; repeat the transaction.
    pub async fn apply(
        &self,
        transaction: &mut Transaction<'_, DB>,
        work: &UnitOfWork,
    ) -> Result<Committed, ChangelogError> {
        self.check(work)?;
        let mut savepoint = transaction.begin().await.map_err(DB::failed)?;
        match self.apply_to(&mut savepoint, work).await {
            Ok(committed) => {
                savepoint.commit().await.map_err(DB::failed)?;
                Ok(committed)
            }
            Err(failed) => {
                let _ = savepoint.rollback().await;
                Err(failed)
            }
        }
    }

    /// Does a unit of work, and leaves half of it after an error.
    async fn apply_to(
        &self,
        transaction: &mut Transaction<'_, DB>,
        work: &UnitOfWork,
    ) -> Result<Committed, ChangelogError> {
        let hidden = |table: &Table| self.hides(table);
        let telling = self.enabled && apply::told(work, hidden) > 0;
        let reservation = match telling {
            true => self.reserve(transaction).await?,
            false => Reservation { version: None, now: None },
        };
        let now = match reservation.now {
            Some(now) => now,
            None => self.time(transaction, apply::needs_time(work)).await?,
        };
        let doing = Doing::<DB> {
            connection: transaction,
            now,
            telling,
            hidden: &hidden,
            persistent: self.statements.persistent,
        };
        let applied = doing.run(work).await?;
        let versionstamp = match reservation.version {
            Some(version) => {
                Some(self.write(transaction, version, work.id(), applied.changes, &applied.ref_map).await?)
            }
            None => None,
        };
        Ok(Committed { versionstamp, created: applied.created })
    }

    /// Takes the next transaction version in a transaction of the caller's own, and keeps every other writer waiting until that
    /// ends. Make it the first statement: what is done before it is not in the order of commits. Nothing is done if the
    /// changelog is off.
    pub async fn reserve(&self, transaction: &mut Transaction<'_, DB>) -> Result<Reservation, ChangelogError> {
        if !self.enabled {
            return Ok(Reservation { version: None, now: None });
        }
        let (version, now) = DB::reserve(transaction, &self.statements).await?;
        let version = version.ok_or(ChangelogError::Exhausted)?;
        Ok(Reservation { version: Some(version), now: Some(date(now)?) })
    }

    /// Writes an entry for what the caller's transaction has changed, under an id of the caller's choice: of all entries with
    /// the same id, one is committed. Answers its stamp, or `None` if the changelog is off.
    pub async fn append(
        &self,
        transaction: &mut Transaction<'_, DB>,
        reservation: Reservation,
        uow_id: &str,
        changes: Vec<Change>,
    ) -> Result<Option<Versionstamp>, ChangelogError> {
        check_id("the id of a unit of work", uow_id)?;
        if changes.is_empty() {
            return Err(invalid("an entry says nothing; reserve and append only where something was changed"));
        }
        check_count(changes.len())?;
        changes.iter().try_for_each(Change::check)?;
        match reservation.version {
            Some(version) => self.write(transaction, version, uow_id, changes, &BTreeMap::new()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Every statement, for tests that prepare or explain them.
    #[doc(hidden)]
    pub fn texts(&self) -> Vec<(&'static str, postrider_store::sql::Sql)> {
        self.statements.all()
    }

    fn check(&self, work: &UnitOfWork) -> Result<(), ChangelogError> {
        check_count(apply::told(work, |table| self.hides(table)))?;
        apply::check::<DB>(work)
    }

    /// Tables that nobody outside is to know of: those that say so, and Postrider's own.
    fn hides(&self, table: &Table) -> bool {
        let declared = table.declared();
        let own = ["settings", "changelog", "cursors", "audit", "migrations", "turns", "clock"];
        let physical = declared.physical.strip_prefix(self.names.prefix());
        declared.internal || declared.physical == self.names.table() || physical.is_some_and(|name| own.contains(&name))
    }

    /// In a task of its own: whoever is dropped while a transaction begins would give its connection back in the middle of
    /// it, and sqlx would not know.
    async fn begin(&self) -> Result<Transaction<'static, DB>, ChangelogError> {
        let pool = self.pool.clone();
        let begun = tokio::spawn(async move {
            let Some(statement) = DB::BEGIN else { return pool.begin().await };
            loop {
                let connection = pool.acquire().await?;
                // SQLite ends a transaction by itself after some errors, and sqlx takes it for open.
                if connection.is_in_transaction() {
                    let _ = connection.close().await;
                    continue;
                }
                return Transaction::begin(connection, Some(statement.into_sql_str())).await;
            }
        });
        let begun = begun.await.map_err(|error| ChangelogError::Unavailable(error.into()))?;
        Ok(begun.map_err(DB::failed)?)
    }

    async fn time(&self, connection: &mut DB::Connection, needed: bool) -> Result<Date, ChangelogError> {
        if !needed {
            return date(0);
        }
        let rows = DB::fetch(connection, &self.statements.query(&self.statements.time, [])).await?;
        date(cell(&rows, 0)?)
    }

    async fn write(
        &self,
        connection: &mut DB::Connection,
        version: TransactionVersion,
        uow_id: &str,
        changes: Vec<Change>,
        ref_map: &BTreeMap<String, String>,
    ) -> Result<Versionstamp, ChangelogError> {
        let stamp = Versionstamp::new(version, 0);
        let stamps = (0..=u16::MAX).map(|number| Versionstamp::new(version, number));
        let mutations = changes.into_iter().zip(stamps).map(|(change, stamp)| change.stamped(stamp));
        let payload = Payload { mutations: mutations.collect() }.to_superjson();
        let ref_map = (!ref_map.is_empty()).then(|| serde_json::json!(ref_map).to_string());
        let arguments = [
            Argument::text(Uuid::now_v7().to_string()),
            Argument::bytes(stamp.as_bytes().as_slice()),
            Argument::text(uow_id),
            Argument::text(payload),
            Argument::Text(ref_map),
            Argument::text(version.to_string()),
        ];
        match DB::execute(connection, &self.statements.query(&self.statements.append, arguments)).await {
            Ok(0) => Err(ChangelogError::ReservationLost { version }),
            Ok(_) => Ok(stamp),
            Err(failed) if failed.kind == Kind::Duplicate && failed.names(UNIT_OF_WORK_KEYS) => {
                Err(ChangelogError::AlreadyCommitted { uow_id: uow_id.to_owned(), versionstamp: None })
            }
            Err(Failed { kind: Kind::Duplicate, .. }) => Err(behind()),
            Err(failed) => Err(failed.into()),
        }
    }

    /// The entry of a unit of work.
    async fn find(&self, uow_id: &str) -> Result<Option<Versionstamp>, ChangelogError> {
        let mut connection = self.pool.acquire().await.map_err(DB::failed)?;
        let query = self.statements.query(&self.statements.find, [Argument::text(uow_id)]);
        let rows = DB::fetch(&mut connection, &query).await?;
        rows.first().map(|_| cell(&rows, 0)).transpose().map_err(Into::into)
    }
}

/// A cell of the only row.
pub(super) fn cell<T: std::str::FromStr>(rows: &[Row], at: usize) -> Result<T, Failed> {
    let text = rows.first().and_then(|row| row.get(at)).and_then(Option::as_deref);
    let value = text.and_then(|text| text.parse().ok());
    value.ok_or_else(|| Failed::unreadable("the changelog's tables hold something that is none of ours"))
}

/// What a reservation answers: a transaction version and the time.
pub(crate) fn reserved(rows: &[Row]) -> Result<(u128, i64), Failed> {
    Ok((cell(rows, 0)?, cell(rows, 1)?))
}

fn date(millis: i64) -> Result<Date, ChangelogError> {
    let date = Date::from_millis(millis);
    date.ok_or_else(|| Failed::unreadable("the database's clock is out of its mind").into())
}

/// What the unique key on the ids of units of work is called in errors.
const UNIT_OF_WORK_KEYS: [&str; 2] = ["changelog_uow", "changelog.uow_id"];

/// The versionstamp is taken although the version was free.
fn behind() -> ChangelogError {
    ChangelogError::Failed(
        "the counter changelog.version is behind the newest entry, so nothing can be written; was a part of the database restored? Set it to the newest transaction version".into(),
    )
}

fn check_count(count: usize) -> Result<(), ChangelogError> {
    if count > MOST_MUTATIONS { Err(ChangelogError::TooManyMutations { count }) } else { Ok(()) }
}

impl<DB: Database> Clone for Changelog<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            names: self.names.clone(),
            statements: self.statements.clone(),
            enabled: self.enabled,
        }
    }
}

impl<DB: Database> fmt::Debug for Changelog<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changelog").field("database", &DB::NAME).field("enabled", &self.enabled).finish()
    }
}
