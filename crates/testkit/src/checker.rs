//! Checkers: invariants that every run with faults ends with.
//!
//! Promise: [`Checker::check`] looks at a database at rest and answers what it counted, or an error that names every
//! invariant that is broken, with examples. It can only speak of what was written down: the producer's ledger, the
//! destination's arrivals, and the changes that a trigger noted, so the checker is installed before the run begins.
//! Workers are told apart by the application name of their connections, which must be the worker's id.
//!
//! | id | invariant |
//! |---|---|
//! | I1 | ledger and outbox agree one to one; what a producer was told is committed is there |
//! | I2 | every message is dead, or delivered and at the destination |
//! | I3 | every arrival maps to a committed message with equal contents |
//! | I4 | arrivals minus distinct arrivals are within the bound |
//! | I6 | every change is an edge of the state machine, by the holder of the lease, and a delivery follows its arrival |
//! | I7 | no lease stands long after its end |
//! | I8 | attempts are within their limit; dead if and only if they are spent |

pub mod arrivals;
mod invariants;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use postrider::State;
use postrider::state::{Event, transition};
use sqlx::PgPool;
use uuid::Uuid;

use invariants::{ATTEMPTS, CHANGES, EXPIRED, Invariant, PLAIN, TOLD};

const EXAMPLES: usize = 3;

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
}

/// The checkers of one database that has an outbox with the default names.
#[derive(Debug, Clone)]
pub struct Checker {
    pool: PgPool,
}

impl Checker {
    /// Creates the tables and the trigger that the checkers read.
    pub async fn install(pool: PgPool) -> Result<Self> {
        sqlx::raw_sql(include_str!("checker/tables.sql"))
            .execute(&pool)
            .await
            .context("cannot install the checkers")?;
        arrivals::create(&mut *pool.acquire().await?).await?;
        Ok(Self { pool })
    }

    /// Checks every invariant, and fails with all that are broken.
    pub async fn check(&self, bounds: &Bounds) -> Result<Report> {
        let mut broken = Vec::new();
        for invariant in PLAIN {
            broken.extend(invariant.breaches(sqlx::query_scalar(invariant.sql).fetch_all(&self.pool).await?));
        }
        let told = sqlx::query_scalar(TOLD.sql).bind(&bounds.told).fetch_all(&self.pool).await?;
        broken.extend(TOLD.breaches(told));
        let overdue = i64::try_from(bounds.overdue.as_millis())?;
        broken.extend(EXPIRED.breaches(sqlx::query_scalar(EXPIRED.sql).bind(overdue).fetch_all(&self.pool).await?));
        let spent = sqlx::query_scalar(ATTEMPTS.sql).bind(bounds.max_attempts).fetch_all(&self.pool).await?;
        broken.extend(ATTEMPTS.breaches(spent));
        broken.extend(self.illegal_changes().await?);
        let report = self.report().await?;
        if report.duplicates > bounds.duplicates {
            broken.push(format!("I4: {} duplicates, at most {} may be", report.duplicates, bounds.duplicates));
        }
        if !broken.is_empty() {
            bail!("broken invariants:\n{}", broken.join("\n"));
        }
        Ok(report)
    }

    /// Counts, without a judgement.
    pub async fn report(&self) -> Result<Report> {
        let (messages, dead, duplicates, reclaims) = sqlx::query_as(
            "select (select count(*) from outbox_messages), \
                    (select count(*) from outbox_messages where status = 'dead'), \
                    (select count(*) - count(distinct id) from arrivals), \
                    (select count(*) from changes where was = 'processing' and became = 'processing')",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Report { messages, dead, duplicates, reclaims })
    }

    async fn illegal_changes(&self) -> Result<Vec<String>> {
        let kinds: Vec<(String, String, i32, String)> = sqlx::query_as(CHANGES).fetch_all(&self.pool).await?;
        let illegal = kinds.into_iter().filter(|(was, became, spent, _)| !is_edge(was, became, *spent));
        let tell =
            |(was, became, spent, id)| format!("I6: {was} became {became} with {spent:+} attempts, such as {id}");
        Ok(illegal.map(tell).collect())
    }
}

/// Whether the state machine has such an edge that changes attempts by so many.
fn is_edge(was: &str, became: &str, spent: i32) -> bool {
    let (Some(was), Some(became)) = (State::parse(was), State::parse(became)) else { return false };
    let events = [Event::Claim, Event::Ack, Event::Nack, Event::Bury, Event::Release, Event::Sweep, Event::Replay];
    let fits = |event: Event| match event {
        Event::Claim => spent == 1,
        Event::Release => spent == -1,
        Event::Replay => spent <= 0,
        Event::Ack | Event::Nack | Event::Bury | Event::Sweep => spent == 0,
    };
    events.into_iter().any(|event| fits(event) && transition(was, event) == Some(became))
}

impl Invariant {
    fn breaches(&self, found: Vec<String>) -> Option<String> {
        let examples = found.iter().take(EXAMPLES).map(String::as_str).collect::<Vec<_>>().join(", ");
        (!found.is_empty()).then(|| format!("{}: {} {}, such as {examples}", self.id, found.len(), self.breach))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_attempts_grow_by_one_at_a_claim_and_only_there() {
        assert!(is_edge("pending", "processing", 1) && is_edge("processing", "processing", 1));
        assert!(!is_edge("pending", "processing", 0) && !is_edge("processing", "processing", 2));
        assert!(is_edge("processing", "pending", 0) && is_edge("processing", "pending", -1));
        assert!(!is_edge("processing", "delivered", 1) && !is_edge("processing", "dead", -1));
    }

    #[test]
    fn i6_delivered_is_never_left_and_nothing_is_deleted() {
        for became in ["pending", "processing", "dead", "deleted"] {
            assert!(!is_edge("delivered", became, 0) && !is_edge("delivered", became, 1), "{became}");
        }
    }
}
