//! What `examine` of the stores has in common: when something is worth a finding, and how a clock is compared.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider_core::operate::Finding;
use postrider_core::store::{StoreError, StoreErrorKind};

use crate::migration::Pending;

/// From when on something is worth a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds {
    /// How long a transaction may be open, a prepared one too: while it is, no dead row version is cleaned away.
    pub transaction: Duration,
    /// How far the database's clock and this host's may be apart.
    pub clock_skew: Duration,
    /// How many dead row versions a table may have, if they are also a fifth of it.
    pub dead_rows: i64,
    /// How much of the write-ahead log a replication slot that nobody reads, or SQLite's `-wal` file, may hold.
    pub log_bytes: i64,
    /// How many free connections a server should have.
    pub free_connections: i64,
    /// From how many rows on a table is too large to be read as a whole.
    pub large_table: i64,
    /// Up to which size an SQLite file is looked through for damage.
    pub checked_bytes: i64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            transaction: Duration::from_secs(5 * 60),
            clock_skew: Duration::from_secs(1),
            dead_rows: 50_000,
            log_bytes: 256 << 20,
            free_connections: 10,
            large_table: 1_000,
            checked_bytes: 256 << 20,
        }
    }
}

/// A finding about the schema's version, and whether the rest can be looked at.
pub(crate) fn schema(pending: Result<Vec<Pending>, StoreError>, latest: i32) -> Result<(Finding, bool), StoreError> {
    const NAME: &str = "schema";
    match pending {
        Ok(pending) => Ok(match pending.first() {
            None => (Finding::fine(NAME, format!("the schema is at version {latest}")), true),
            Some((1, ..)) => (Finding::problem(NAME, "the database has no outbox yet", "run postrider migrate"), false),
            Some((version, name, _)) => {
                let what = format!("the schema lacks version {version} ({name}); this Postrider needs {latest}");
                (Finding::problem(NAME, what, "run postrider migrate"), true)
            }
        }),
        Err(error) if error.kind() == StoreErrorKind::Schema => Ok((from_error(NAME, &error), false)),
        Err(error) => Err(error),
    }
}

/// Our errors say what is wrong and, after the last semicolon, what to do.
pub(crate) fn from_error(name: &'static str, error: &StoreError) -> Finding {
    let text = error.to_string();
    let (what, fix) = text.rsplit_once("; ").unwrap_or((&text, "see the database's log"));
    Finding::problem(name, what, fix)
}

/// The name of the findings about consumers of the changelog.
pub(crate) const CONSUMERS: &str = "changelog-consumers";

/// Findings about consumers of the changelog that do not get on, each with its name and since when. Why is for those to read
/// who may read entries: a handler's error may quote one.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(dead_code))]
pub(crate) fn consumers(held_back: &[(String, String)], cursors: &str) -> Vec<Finding> {
    if held_back.is_empty() {
        return vec![Finding::fine(CONSUMERS, "no consumer of the changelog is held back")];
    }
    let finding = |(name, since): &(String, String)| {
        Finding::warning(
            CONSUMERS,
            format!(
                "the consumer {name:?} of the changelog has been held back since {since}: it fails at one entry, and reads none after it"
            ),
            format!("see last_error of its row in {cursors} and mend the consumer; it goes on by itself"),
        )
    };
    held_back.iter().map(finding).collect()
}

/// What is said where the role may not read how far consumers are.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
pub(crate) fn consumers_unseen(cursors: &str) -> Finding {
    let why = format!("the privilege to select from {cursors} is missing; postrider migrate --print-grants has it");
    Finding::not_examined(CONSUMERS, why)
}

/// Microseconds since 1970 on this host.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(dead_code))]
pub(crate) fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// One look at another clock: what it said, and what this host's said before and after.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
pub(crate) struct Reading {
    pub before: i64,
    pub theirs: i64,
    pub after: i64,
}

/// Compares two clocks. The answer was made at some time between asking and hearing it, so the quickest look tells most,
/// and what lies between is no skew.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
pub(crate) fn clock_skew(readings: &[Reading], threshold: Duration) -> Finding {
    const NAME: &str = "clock-skew";
    let Some(best) = readings.iter().min_by_key(|reading| reading.after - reading.before) else {
        return Finding::not_examined(NAME, "the clock told no time");
    };
    let skew = if best.theirs < best.before { best.theirs - best.before } else { (best.theirs - best.after).max(0) };
    let apart = Duration::from_micros(skew.unsigned_abs());
    if apart <= threshold {
        return Finding::fine(NAME, format!("the database's clock and this host's are within {threshold:?}"));
    }
    let way = if skew < 0 { "behind" } else { "ahead of" };
    Finding::warning(
        NAME,
        format!(
            "the database's clock is {:.1} s {way} this host's; leases go by the database's alone, but logs and metrics of the two cannot be compared",
            apart.as_secs_f64()
        ),
        "synchronise both hosts with NTP",
    )
}

#[cfg(test)]
mod tests {
    use postrider_core::operate::Severity;

    use super::*;

    #[test]
    fn a_slow_answer_is_no_skew_and_a_wrong_clock_is_one() {
        let second = 1_000_000;
        let skew = |readings: &[Reading]| clock_skew(readings, Duration::from_secs(1));
        let slow = Reading { before: 0, theirs: 4 * second, after: 9 * second };
        assert_eq!(skew(&[slow]).severity, Severity::Fine);
        let ahead = Reading { before: 0, theirs: 4 * second, after: second / 100 };
        assert!(skew(&[slow, ahead]).what.contains("4.0 s ahead of"), "{}", skew(&[slow, ahead]));
        let behind = Reading { before: 60 * second, theirs: 0, after: 61 * second };
        assert!(skew(&[behind]).what.contains("60.0 s behind"), "{}", skew(&[behind]));
        assert_eq!(skew(&[]).severity, Severity::Fine);
    }
}
