//! The mirror: the blog's authors and posts in a database of another shape, by nothing but the changelog.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider::changelog::{After, Cursor, Entry, Mutation, Operation, Value};
use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction};

use crate::home::Home;

/// References are external ids here, and edits are counted. Nothing refers to the blog's internal ids, which it never sees.
const TABLES: &str = "
create table if not exists authors (id text not null primary key, name text not null, written integer not null);
create table if not exists posts (
  id text not null primary key, title text not null, author text not null references authors, edits integer not null);
create table if not exists cursor (only_one integer primary key check (only_one = 1), position text not null, entries integer not null);";

/// A mirror in a database.
#[derive(Clone)]
pub struct Mirror {
    pool: SqlitePool,
}

impl Mirror {
    /// Makes the tables.
    pub async fn open(pool: SqlitePool) -> Result<Self> {
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        Ok(Self { pool })
    }

    /// Its database.
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Mirrors without an end.
    pub async fn follow(self, changelog: Arc<dyn Home>) -> Result<()> {
        loop {
            self.catch_up(&*changelog).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Mirrors what is there; answers how many entries were applied since the beginning.
    pub async fn catch_up(&self, changelog: &dyn Home) -> Result<i64> {
        loop {
            let Position { at, entries } = position(&mut *self.pool.acquire().await?).await?;
            let after = at.as_deref().map(str::parse).transpose()?.map_or(After::Beginning, After::Cursor);
            let page = changelog.list(after, 100).await?;
            if page.entries.is_empty() {
                return Ok(entries);
            }
            let mut at = at;
            for entry in &page.entries {
                let next = Cursor::at(page.store, entry).to_string();
                if !self.apply(entry, at.as_deref(), &next).await? {
                    break;
                }
                at = Some(next);
            }
        }
    }

    /// How many entries were applied since the beginning.
    pub async fn entries(&self) -> Result<i64> {
        Ok(position(&mut *self.pool.acquire().await?).await?.entries)
    }

    /// Applies an entry and moves the cursor, together or not at all. The cursor is read again in the transaction: if it is not
    /// where this mirror has read, another mirror has gone on meanwhile, and nothing is done.
    async fn apply(&self, entry: &Entry, before: Option<&str>, next: &str) -> Result<bool> {
        let mut transaction = self.pool.begin_with("begin immediate").await?;
        if position(&mut transaction).await?.at.as_deref() != before {
            return Ok(false);
        }
        for mutation in entry.resolved()?.mutations {
            apply(&mut transaction, &mutation).await.with_context(|| format!("at {}", mutation.versionstamp))?;
        }
        let moved = "insert into cursor (only_one, position, entries) values (1, ?1, 1)
                     on conflict (only_one) do update set position = excluded.position, entries = entries + 1";
        sqlx::query(moved).bind(next).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

/// How far a mirror is.
struct Position {
    /// The cursor, if anything was applied.
    at: Option<String>,
    entries: i64,
}

async fn position(connection: &mut SqliteConnection) -> Result<Position> {
    let found = sqlx::query_as("select position, entries from cursor").fetch_optional(connection).await?;
    let (at, entries) = found.map_or((None, 0), |(at, entries): (String, i64)| (Some(at), entries));
    Ok(Position { at, entries })
}

async fn apply(transaction: &mut Transaction<'_, Sqlite>, mutation: &Mutation) -> Result<()> {
    let id = &mutation.external_id;
    let query = match (mutation.table.as_str(), &mutation.operation) {
        ("authors", Operation::Create { values }) => {
            let query = sqlx::query("insert into authors (id, name, written) values (?1, ?2, ?3)").bind(id);
            query.bind(text(values, "name")?).bind(number(values, "written")?)
        }
        ("authors", Operation::Update { set, .. }) => {
            sqlx::query("update authors set written = ?2 where id = ?1").bind(id).bind(number(set, "written")?)
        }
        ("authors", Operation::Delete { .. }) => sqlx::query("delete from authors where id = ?1").bind(id),
        ("posts", Operation::Create { values }) => {
            sqlx::query("insert into posts (id, title, author, edits) values (?1, ?2, ?3, 0)")
                .bind(id)
                .bind(text(values, "title")?)
                .bind(text(values, "author")?)
        }
        ("posts", Operation::Update { set, .. }) => {
            sqlx::query("update posts set title = ?2, edits = edits + 1 where id = ?1")
                .bind(id)
                .bind(text(set, "title")?)
        }
        ("posts", Operation::Delete { .. }) => sqlx::query("delete from posts where id = ?1").bind(id),
        (table, _) => anyhow::bail!("the mirror has no such change of {table}"),
    };
    let changed = query.execute(&mut **transaction).await?.rows_affected();
    ensure!(changed == 1, "{} {id} is not as the changelog says", mutation.table);
    Ok(())
}

fn text<'a>(values: &'a BTreeMap<String, Value>, column: &str) -> Result<&'a str> {
    match values.get(column) {
        Some(Value::Text(text)) => Ok(text),
        _ => anyhow::bail!("{column} is no text"),
    }
}

fn number(values: &BTreeMap<String, Value>, column: &str) -> Result<f64> {
    match values.get(column) {
        Some(Value::Number(number)) => Ok(*number),
        _ => anyhow::bail!("{column} is no number"),
    }
}
