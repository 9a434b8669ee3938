//! Checkers: invariants that every run with faults ends with.
//!
//! Promise: [`Checker::check`] looks at a database at rest and answers what it counted, or an error that names every
//! invariant that is broken, with examples. It can only speak of what was written down: the producer's ledger, the
//! destination's arrivals, and the changes that a trigger noted, so the checker is installed before the run begins.
//! Workers are told apart by the accounts and the application names of their connections, so each has one of its own.
//!
//! | id | invariant |
//! |---|---|
//! | I1 | ledger and outbox agree one to one; what a producer was told is committed is there |
//! | I2 | every message is dead, or delivered and at the destination |
//! | I3 | every arrival maps to a committed message with equal contents |
//! | I4 | arrivals minus distinct arrivals are within the bound |
//! | I5 | first arrivals of a key are in order, where order was asked for |
//! | I6 | every change is an edge of the state machine, by the holder of the lease, and a delivery follows its arrival |
//! | I7 | no lease stands long after its end |
//! | I8 | attempts are within their limit; dead if and only if they are spent, or refused for good |
//!
//! [`evidence`] is the same for every database and [`judge`] a pure function of it. [`Checker`] is for PostgreSQL, with the
//! arrivals in a table; [chaos](crate::chaos) is for all databases, and brings I9 and I10.

pub mod arrivals;
pub mod evidence;
pub mod judge;

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use postrider::{AnyStore, Names, PostgresStore};
use sqlx::PgPool;
use uuid::Uuid;

use crate::source::Source;
use evidence::{Arrival, Entry, Evidence, read};

/// What a run may show at most.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Extra copies at the destination.
    pub duplicates: i64,
    /// The relays' number of allowed attempts.
    pub max_attempts: i32,
    /// How long after its end a lease may stand: two polls and a sweep interval.
    pub overdue: Duration,
    /// What producers were told is committed.
    pub told: Vec<Uuid>,
}

/// What a run showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Messages committed.
    pub messages: i64,
    /// Messages that are dead.
    pub dead: i64,
    /// Copies at the destination, beyond one per message.
    pub duplicates: i64,
    /// Claims of a row whose lease had run out.
    pub reclaims: i64,
    /// How long after its end a lease was taken over, at worst.
    pub slowest_reclaim: Duration,
}

/// Writes down every change of the outbox's rows from now on; [`evidence::outbox`] reads it.
pub async fn watch(source: &Source) -> Result<()> {
    source.run(evidence::watch(source.dialect())).await.context("cannot watch the outbox")
}

/// The checkers of one database that has an outbox with the default names.
#[derive(Clone)]
pub struct Checker {
    source: Source,
}

impl Checker {
    /// Creates the tables and the trigger that the checkers read.
    pub async fn install(pool: PgPool) -> Result<Self> {
        let source = Source::from(AnyStore::Postgres(PostgresStore::new(pool.clone(), Names::default())));
        source.run("create table ledger (id uuid primary key)").await?;
        watch(&source).await?;
        arrivals::create(&mut *pool.acquire().await?).await?;
        Ok(Self { source })
    }

    /// Checks every invariant, and fails with all that are broken.
    pub async fn check(&self, bounds: &Bounds) -> Result<Report> {
        let evidence = self.evidence().await?;
        let broken = judge::judge(&evidence, bounds);
        if !broken.is_empty() {
            bail!("broken invariants:\n{}", broken.join("\n"));
        }
        Ok(judge::report(&evidence))
    }

    async fn evidence(&self) -> Result<Evidence> {
        let (mut rows, changes) = evidence::outbox(&self.source).await?;
        let known: HashMap<Uuid, u64> = read(&self.source, CONTENTS, contents).await?.into_iter().collect();
        rows.iter_mut().for_each(|row| row.contents = known.get(&row.id).copied());
        let ledger = read(&self.source, "select id::text from ledger", entry).await?;
        let arrivals = read(&self.source, ARRIVALS, arrival).await?;
        Ok(Evidence { ledger, rows, arrivals, changes, grain: 0, drops_repeats: false })
    }
}

/// The contents of a row and of an arrival as one number, by the same rule.
const CONTENTS: &str = "select concat_ws('|', id, hashtextextended(concat_ws('|', topic, coalesce('+' || key, '-'), \
    coalesce(tenant_id::text, '-'), md5(coalesce(payload_bytes, convert_to(payload::text, 'utf8')))), 0)) \
    from outbox_messages";
const ARRIVALS: &str = "select concat_ws('|', id, attempt, hashtextextended(concat_ws('|', topic, \
    coalesce('+' || key, '-'), coalesce(tenant_id::text, '-'), digest), 0), (extract(epoch from at) * 1000000)::bigint) \
    from arrivals order by at";

fn contents(fields: &mut evidence::Fields<'_>) -> Result<(Uuid, u64)> {
    Ok((fields.parse()?, fields.parse::<i64>()?.cast_unsigned()))
}

fn entry(fields: &mut evidence::Fields<'_>) -> Result<Entry> {
    Ok(Entry { id: fields.parse()?, contents: None, lane: None, place: 0, is_doomed: false })
}

fn arrival(fields: &mut evidence::Fields<'_>) -> Result<Arrival> {
    Ok(Arrival {
        id: fields.parse()?,
        attempt: fields.parse()?,
        contents: fields.parse::<i64>()?.cast_unsigned(),
        at: fields.parse()?,
    })
}
