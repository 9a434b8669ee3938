//! Reading a changelog, and the positions of its named consumers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::value::RawValue;
use sqlx::Transaction;
use sqlx::pool::PoolConnection;
use uuid::Uuid;

use super::changelog::cell;
use super::{Argument, Changelog, Database, Failed, Query, Row};
use crate::{
    After, ChangelogError, ConsumerState, Cursor, DEFAULT_LIMIT, Entry, LARGEST_LIMIT, Lease, Page, Reader,
    Versionstamp,
};

/// When a page has so many bytes no further entry is added to it, so that a page of large ones fits into memory.
const LARGEST_PAGE: usize = 16 << 20;
/// What `consumer_there.sql` says of a lease that has ended.
const FREE: &str = "free";
/// The longest text of an error that is kept for operators, in characters.
const LONGEST_ERROR: usize = 500;

impl<DB: Database> Changelog<DB> {
    /// Says how far a named consumer has read in a transaction of its own, in the same database as the changelog: what it did
    /// with the entries is there if and only if its position is. Nothing is changed if the lease was lost.
    pub async fn advance_in(
        &self,
        transaction: &mut Transaction<'_, DB>,
        lease: &Lease,
        to: &Cursor,
        length: Duration,
    ) -> Result<(), ChangelogError> {
        check_forward(lease, to)?;
        let query = self.advancing(lease, Some(to), length);
        fenced(lease, DB::execute(transaction, &query).await?)
    }

    fn advancing(&self, lease: &Lease, to: Option<&Cursor>, length: Duration) -> Query {
        let statements = &self.statements;
        let length = Argument::from(micros(length));
        let [consumer, owner, fence] = fence(lease);
        match to {
            Some(to) => {
                let [stamp, entry] = position(to);
                statements.query(&statements.consumer_advance, [stamp, entry, length, consumer, owner, fence])
            }
            None => statements.query(&statements.consumer_renew, [length, consumer, owner, fence]),
        }
    }

    async fn connection(&self) -> Result<PoolConnection<DB>, ChangelogError> {
        Ok(self.pool.acquire().await.map_err(DB::failed)?)
    }

    async fn store(&self, connection: &mut DB::Connection) -> Result<Uuid, ChangelogError> {
        let rows = DB::fetch(connection, &self.statements.query(&self.statements.store_id, [])).await?;
        Ok(cell(&rows, 0)?)
    }

    /// The entries after a place, and whether there are more than this limit or the largest page lets through.
    async fn entries(
        &self,
        connection: &mut DB::Connection,
        after: After,
        limit: u32,
    ) -> Result<(Vec<Entry>, bool), ChangelogError> {
        let checked = match after {
            After::Cursor(cursor) => cursor.entry().map(|id| (cursor, id)),
            _ => None,
        };
        let (sql, count) = match checked {
            Some(_) => (&self.statements.list_from, limit + 2),
            None => (&self.statements.list, limit + 1),
        };
        let stamp = match after {
            After::Beginning => Versionstamp::ZERO,
            After::Versionstamp(stamp) => stamp,
            After::Cursor(cursor) => cursor.versionstamp(),
        };
        let bytes = Argument::bytes(stamp.as_bytes().as_slice());
        let mut arguments = vec![bytes.clone(), Argument::from(i64::from(count))];
        if checked.is_some() && !DB::NUMBERED {
            arguments.insert(0, bytes);
        }
        let query = self.statements.query(sql, arguments);
        let (rows, all) = DB::fetch_some(connection, &query, LARGEST_PAGE).await?;
        let mut entries = rows.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
        if let Some((cursor, id)) = checked {
            match entries.first() {
                Some(first) if first.versionstamp == stamp && first.id == id => drop(entries.remove(0)),
                _ => return Err(ChangelogError::LostHistory(cursor)),
            }
        }
        let more = !all || entries.len() > limit as usize;
        entries.truncate(limit as usize);
        Ok((entries, more))
    }

    /// The cursor of a place: at the newest entry up to it.
    async fn place(&self, connection: &mut DB::Connection, after: After) -> Result<Cursor, ChangelogError> {
        let store = self.store(connection).await?;
        let stamp = match after {
            After::Beginning => return Ok(Cursor::beginning(store)),
            After::Versionstamp(stamp) => stamp,
            After::Cursor(cursor) => {
                same_store(store, &cursor)?;
                self.entries(connection, after, 0).await?;
                return Ok(cursor);
            }
        };
        let arguments = [Argument::bytes(stamp.as_bytes().as_slice())];
        let rows = DB::fetch(connection, &self.statements.query(&self.statements.place, arguments)).await?;
        match rows.is_empty() {
            true => Ok(Cursor::beginning(store)),
            false => Ok(Cursor::new(store, cell(&rows, 0)?, Some(cell(&rows, 1)?))),
        }
    }

    /// Runs a statement that changes a consumer; false if there was none such.
    async fn change(&self, query: Query) -> Result<u64, ChangelogError> {
        let mut connection = self.connection().await?;
        Ok(DB::execute(&mut connection, &query).await?)
    }
}

#[async_trait]
impl<DB: Database> Reader for Changelog<DB> {
    async fn list(&self, after: After, limit: u32) -> Result<Page, ChangelogError> {
        let limit = if limit == 0 { DEFAULT_LIMIT } else { limit.min(LARGEST_LIMIT) };
        let mut connection = self.connection().await?;
        let store = self.store(&mut connection).await?;
        if let After::Cursor(cursor) = &after {
            same_store(store, cursor)?;
        }
        let (entries, more) = self.entries(&mut connection, after, limit).await?;
        let next = match (entries.last(), after) {
            (Some(entry), _) => Cursor::at(store, entry),
            (None, After::Cursor(cursor)) => cursor,
            (None, After::Beginning) => Cursor::beginning(store),
            // It may lie ahead of the newest entry, and is kept as it is.
            (None, After::Versionstamp(stamp)) => Cursor::new(store, stamp, None),
        };
        Ok(Page { store, entries, next, more })
    }

    async fn head(&self) -> Result<Cursor, ChangelogError> {
        self.place(&mut *self.connection().await?, Versionstamp::MAX.into()).await
    }

    async fn acquire(
        &self,
        consumer: &str,
        owner: Uuid,
        lease: Duration,
        first: After,
    ) -> Result<Option<Lease>, ChangelogError> {
        let statements = &self.statements;
        let (name, id) = (Argument::text(consumer), Argument::text(owner.to_string()));
        let take = || {
            let arguments = [id.clone(), Argument::from(micros(lease)), name.clone()];
            statements.query(&statements.consumer_take, arguments)
        };
        let mut connection = self.connection().await?;
        // It is looked first, so that those who wait for a lease write nothing.
        let there = statements.query(&statements.consumer_there, [name.clone()]);
        match DB::fetch(&mut connection, &there).await?.first().map(|row| row.as_slice()) {
            Some([Some(free)]) if free == FREE => {}
            Some(_) => return Ok(None),
            None => {
                let [stamp, entry] = position(&self.place(&mut connection, first).await?);
                let make = statements.query(&statements.consumer_make, [name.clone(), stamp, entry]);
                DB::execute(&mut connection, &make).await?;
            }
        }
        if DB::execute(&mut connection, &take()).await? == 0 {
            return Ok(None);
        }
        let rows = DB::fetch(&mut connection, &statements.query(&statements.consumer_read, [name, id])).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let cursor = Cursor::new(self.store(&mut connection).await?, cell(&rows, 1)?, cell(&rows, 2).ok());
        Ok(Some(Lease { consumer: consumer.to_owned(), owner, fence: cell(&rows, 0)?, cursor }))
    }

    async fn advance(&self, lease: &Lease, to: Option<&Cursor>, length: Duration) -> Result<(), ChangelogError> {
        to.map_or(Ok(()), |to| check_forward(lease, to))?;
        fenced(lease, self.change(self.advancing(lease, to, length)).await?)
    }

    async fn hold_back(&self, lease: &Lease, why: &str, length: Duration) -> Result<(), ChangelogError> {
        let why: String = why.chars().filter(|c| *c != '\0').take(LONGEST_ERROR).collect();
        let [consumer, owner, fence] = fence(lease);
        let arguments = [Argument::text(why), Argument::from(micros(length)), consumer, owner, fence];
        fenced(lease, self.change(self.statements.query(&self.statements.consumer_hold_back, arguments)).await?)
    }

    async fn release(&self, lease: &Lease) -> Result<(), ChangelogError> {
        fenced(lease, self.change(self.statements.query(&self.statements.consumer_release, fence(lease))).await?)
    }

    async fn consumers(&self) -> Result<Vec<ConsumerState>, ChangelogError> {
        let mut connection = self.connection().await?;
        let head = self.place(&mut connection, Versionstamp::MAX.into()).await?;
        let rows = DB::fetch(&mut connection, &self.statements.query(&self.statements.consumers, [])).await?;
        Ok(rows.into_iter().map(|row| state(row, &head)).collect::<Result<_, _>>()?)
    }

    async fn reset(&self, consumer: &str, to: After) -> Result<bool, ChangelogError> {
        let [stamp, entry] = position(&self.place(&mut *self.connection().await?, to).await?);
        let arguments = [stamp, entry, Argument::text(consumer)];
        Ok(self.change(self.statements.query(&self.statements.consumer_reset, arguments)).await? > 0)
    }

    async fn forget(&self, consumer: &str) -> Result<bool, ChangelogError> {
        let arguments = [Argument::text(consumer)];
        Ok(self.change(self.statements.query(&self.statements.consumer_forget, arguments)).await? > 0)
    }
}

/// Whether a consumer may say that it has read so far.
fn check_forward(lease: &Lease, to: &Cursor) -> Result<(), ChangelogError> {
    same_store(lease.cursor.store(), to)?;
    let (from, to) = (lease.cursor.versionstamp(), to.versionstamp());
    match from <= to {
        true => Ok(()),
        false => Err(ChangelogError::Invalid(format!(
            "consumer {:?} was at {from} and cannot go back to {to}; use reset",
            lease.consumer
        ))),
    }
}

fn same_store(store: Uuid, cursor: &Cursor) -> Result<(), ChangelogError> {
    match cursor.store() {
        found if found == store => Ok(()),
        found => Err(ChangelogError::OtherStore { store, found }),
    }
}

fn fenced(lease: &Lease, changed: u64) -> Result<(), ChangelogError> {
    if changed > 0 { Ok(()) } else { Err(ChangelogError::LeaseLost { consumer: lease.consumer.clone() }) }
}

/// The parameters that a fenced statement ends with.
fn fence(lease: &Lease) -> [Argument; 3] {
    [Argument::text(&lease.consumer), Argument::text(lease.owner.to_string()), Argument::from(lease.fence)]
}

/// The parameters that say how far a consumer has read.
fn position(cursor: &Cursor) -> [Argument; 2] {
    let entry = cursor.entry().map(|entry| entry.to_string());
    [Argument::bytes(cursor.versionstamp().as_bytes().as_slice()), Argument::Text(entry)]
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn unreadable(what: &str) -> Failed {
    Failed::unreadable(format!(
        "an entry of the changelog has {what} that cannot be read; it was not written by Postrider"
    ))
}

fn entry(row: Row) -> Result<Entry, Failed> {
    let mut cells = row.into_iter();
    let mut next = |what: &'static str| cells.next().flatten().ok_or_else(|| unreadable(what));
    let versionstamp = next("a versionstamp")?.parse().map_err(|_| unreadable("a versionstamp"))?;
    let id = next("an id")?.parse().map_err(|_| unreadable("an id"))?;
    let uow_id = next("an id of its unit of work")?;
    let payload = RawValue::from_string(next("a payload")?).map_err(|_| unreadable("a payload"))?;
    let ref_map = cells.next().flatten();
    let ref_map = ref_map.map(|text| serde_json::from_str(&text).map_err(|_| unreadable("references"))).transpose()?;
    let created_at = cells.next().flatten().and_then(|micros| time(&micros)).ok_or_else(|| unreadable("a time"))?;
    Ok(Entry { id, versionstamp, uow_id, payload, ref_map, created_at })
}

fn state(row: Row, head: &Cursor) -> Result<ConsumerState, Failed> {
    let rows = [row];
    let versionstamp: Versionstamp = cell(&rows, 1)?;
    let newest = head.versionstamp().transaction_version().get();
    Ok(ConsumerState {
        name: cell(&rows, 0)?,
        cursor: Cursor::new(head.store(), versionstamp, cell(&rows, 2).ok()),
        behind: newest.saturating_sub(versionstamp.transaction_version().get()),
        held_by: cell(&rows, 3).ok(),
        last_error: cell(&rows, 4).ok(),
        failed_since: cell::<String>(&rows, 5).ok().and_then(|micros| time(&micros)),
    })
}

/// A time from microseconds since 1970.
fn time(micros: &str) -> Option<SystemTime> {
    let micros: i64 = micros.parse().ok()?;
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}
