//! Units of work per second with the changelog off and on, and how fast a long changelog is read.
//!
//! What total order costs is the ratio of on to off: with the changelog on, writers take turns from their first statement to
//! the end of their commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use postrider::Names;
use postrider::changelog::{
    After, Changelog, ChangelogError, Column, Database, Reader, Schema, Table, TableBuilder, UnitOfWork,
};
use sqlx::{AssertSqlSafe, MySql, Pool, Row, Sqlite};
use testkit::{MariaDb, Postgres};
use tokio::task::JoinSet;

use crate::median;
use crate::subject::{Files, Subject};

const SLICE: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
const WRITERS: [usize; 3] = [1, 8, 32];
const ENTRIES: usize = 1_000_000;
const PAGE: u32 = 1_000;

/// A database whose changelog is measured.
#[allow(async_fn_in_trait)] // awaited on the bench's own task
pub trait Logged: Subject<Pool = Pool<Self::Db>> {
    type Db: Database;

    /// What makes the table that units of work write to.
    const TABLE: &'static str;

    /// What fills a changelog with so many entries.
    const FILL: &'static str;

    /// What reads a page after a versionstamp, with its payloads.
    const PAGE: &'static str;

    /// A database of its own, with a connection for each writer.
    async fn wide(&self) -> Result<Self::Pool>;

    /// Runs a text.
    async fn execute(pool: &Self::Pool, sql: &'static str) -> Result<()>;

    /// Reads a page with bare SQL: how many rows there were, and the last versionstamp.
    async fn bare_page(pool: &Self::Pool, after: &[u8]) -> Result<(usize, Vec<u8>)>;
}

pub async fn run<S: Logged>(subject: &S) -> Result<()> {
    for writers in WRITERS {
        let (mut off, mut on) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let pool = subject.wide().await?;
            S::store(&pool).await?;
            S::execute(&pool, S::TABLE).await?;
            let changelog = Changelog::new(pool.clone(), Names::default());
            // Every writer has its connection before the clock starts.
            rate(&changelog, writers, SLICE / 10).await?;
            S::settle_down(&pool).await?;
            off.push(rate(&changelog, writers, SLICE).await?);
            S::settle_down(&pool).await?;
            on.push(rate(&changelog.enabled(true), writers, SLICE).await?);
            pool.close().await;
        }
        let (off, on) = (median(off), median(on));
        println!(
            "changelog on {}, {writers} writers: off {off:.0}, on {on:.0} units of work/s, ratio {:.2}",
            S::NAME,
            on / off
        );
    }
    read(subject).await
}

/// Creates one row in each unit of work.
async fn rate<DB: Database>(changelog: &Changelog<DB>, writers: usize, slice: Duration) -> Result<f64> {
    let notes = notes()?;
    let (done, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..writers {
        let (changelog, notes, done) = (changelog.clone(), notes.clone(), done.clone());
        tasks.spawn(async move {
            let text = "x".repeat(200);
            while started.elapsed() < slice {
                let mut work = UnitOfWork::new();
                work.create(&notes, [("text", text.as_str().into())])?;
                match changelog.commit(&work).await {
                    Ok(_) => done.fetch_add(1, Ordering::Relaxed),
                    Err(ChangelogError::Conflict(_)) => continue,
                    Err(error) => return Err(error.into()),
                };
            }
            Ok::<(), anyhow::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

fn notes() -> Result<Table> {
    let schema = Schema::builder("bench").table(TableBuilder::new("notes").column(Column::text("text"))).build()?;
    Ok(schema.table("notes")?)
}

/// Reads a long changelog from the beginning to the end, and the same with bare SQL.
async fn read<S: Logged>(subject: &S) -> Result<()> {
    let pool = subject.fresh().await?;
    S::store(&pool).await?;
    S::execute(&pool, S::FILL).await?;
    S::settle_down(&pool).await?;
    let changelog = Changelog::new(pool.clone(), Names::default());
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let (mut count, mut after) = (0, vec![0; 12]);
        loop {
            let (rows, last) = S::bare_page(&pool, &after).await?;
            if rows == 0 {
                break;
            }
            (count, after) = (count + rows, last);
        }
        ensure!(count == ENTRIES, "the bare loop has read {count} entries");
        let bare = ENTRIES as f64 / started.elapsed().as_secs_f64();

        let started = Instant::now();
        let (mut count, mut after) = (0, After::Beginning);
        loop {
            let page = changelog.list(after, PAGE).await?;
            count += page.entries.len();
            after = page.next.into();
            if !page.more {
                break;
            }
        }
        ensure!(count == ENTRIES, "{count} entries were listed");
        let ours = ENTRIES as f64 / started.elapsed().as_secs_f64();
        ratios.push(ours / bare);
        rates.push(ours);
    }
    println!(
        "changelog on {}: {ENTRIES} entries read at {:.0} entries/s, median ratio {:.2} to bare SQL",
        S::NAME,
        median(rates),
        median(ratios)
    );
    Ok(())
}

macro_rules! payload {
    () => {
        r#"{"json":{"version":1,"mutations":[{"op":"create","schema":"bench","namespace":"bench","table":"notes","externalId":"01976f3c-7f3e-7c3e-8a43-0d5f5b5a0d11","versionstamp":"000000000000000000010000","values":{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}]},"meta":{"v":1}}"#
    };
}

/// The `Logged` of a database.
macro_rules! logged {
    ($subject:ty, $db:ty, $wide:expr, table $table:expr, fill $fill:expr, page $page:expr) => {
        impl Logged for $subject {
            type Db = $db;

            const TABLE: &'static str = $table;
            const FILL: &'static str = $fill;
            const PAGE: &'static str = $page;

            async fn wide(&self) -> Result<Pool<$db>> {
                $wide(self).await
            }

            async fn execute(pool: &Pool<$db>, sql: &'static str) -> Result<()> {
                sqlx::raw_sql(sql).execute(pool).await?;
                Ok(())
            }

            async fn bare_page(pool: &Pool<$db>, after: &[u8]) -> Result<(usize, Vec<u8>)> {
                let page = sqlx::query(AssertSqlSafe(Self::PAGE)).bind(after).fetch_all(pool).await?;
                for row in &page {
                    let _payload: &str = row.try_get(1)?;
                }
                let last = page.last().map(|row| row.try_get(0)).transpose()?;
                Ok((page.len(), last.unwrap_or_default()))
            }
        }
    };
}

logged! {
    Postgres, sqlx::Postgres,
    async |server: &Postgres| server.create_database().await?.pool_with(|options| options.max_connections(40).min_connections(32)).await,
    table "create table notes (_internal_id bigint generated always as identity primary key, id text not null unique, _version bigint not null, text text not null)",
    fill concat!(
        "insert into postrider_changelog (versionstamp, uow_id, payload) select decode(lpad(to_hex(n), 20, '0') || '0000', 'hex'), n::text, '",
        payload!(), "' from generate_series(1, 1000000) as n"
    ),
    page "select versionstamp, payload::text from postrider_changelog where versionstamp > $1 order by versionstamp limit 1000"
}

logged! {
    MariaDb, MySql,
    async |server: &MariaDb| server.create_database().await?.pool_with(|options| options.max_connections(40).min_connections(32)).await,
    table "create table notes (_internal_id bigint auto_increment primary key, id varchar(64) not null unique, _version bigint not null, text text not null)",
    fill concat!(
        "insert into postrider_changelog (versionstamp, uow_id, payload) select unhex(concat(lpad(hex(n), 20, '0'), '0000')), n, '",
        payload!(),
        "' from (with recursive counted as (select 1 as n union all select n + 1 from counted where n < 1000) select (a.n - 1) * 1000 + b.n as n from counted as a, counted as b) as numbers"
    ),
    page "select versionstamp, payload from postrider_changelog where versionstamp > ? order by versionstamp limit 1000"
}

logged! {
    Files, Sqlite,
    Files::fresh,
    table "create table notes (_internal_id integer primary key autoincrement, id text not null unique, _version integer not null, text text not null)",
    fill concat!(
        "with recursive counted (n) as (select 1 union all select n + 1 from counted where n < 1000000) insert into postrider_changelog (id, versionstamp, uow_id, payload) select printf('01976f3c-7f3e-7c3e-8a43-%012x', n), unhex(printf('%020x0000', n)), cast(n as text), '",
        payload!(), "' from counted"
    ),
    page "select versionstamp, payload from postrider_changelog where versionstamp > ?1 order by versionstamp limit 1000"
}
