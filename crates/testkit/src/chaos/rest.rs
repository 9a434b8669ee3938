//! The end of a run: nothing goes wrong any more, everything comes to rest, and the checkers look at it.

use std::collections::HashSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::process::Command;
use uuid::Uuid;

use super::Tell;
use super::broker::Broker;
use super::coverage::Coverage;
use super::metrics::scrape;
use super::place::Place;
use super::plan::{Kind, Plan};
use super::producers::{self, Told};
use super::relay::{Fleet, MAX_ATTEMPTS, Settings};
use super::schedule::Event;
use super::secret::leaks;
use super::verdict::Verdict;
use crate::checker::Bounds;
use crate::checker::evidence::{Evidence, outbox};
use crate::checker::judge::{judge, report};

/// How often a long wait says how far it is.
pub const TELL_EVERY: Duration = Duration::from_secs(10);
/// A run that delivers nothing for so long will never come to rest.
const STANDSTILL: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The most repeats that the faults so far may make (I4).
///
/// A fault of one relay repeats what that had in its hand at most; one of the database, or of the way to it, what all had. While
/// the broker's answers are lost every attempt may arrive, as often as the sink's time-out fits in, and once more. While the disk is
/// full a claim may work and its settle may not, as often as a lease fits in.
pub struct Bound {
    in_flight: usize,
    publish: Duration,
    lease: Duration,
    relays: usize,
    duplicates: usize,
    faults: usize,
}

impl Bound {
    /// No faults yet.
    pub fn new(settings: Settings, relays: usize) -> Self {
        let Settings { publish, lease, .. } = settings;
        Self { in_flight: settings.in_flight(), publish, lease, relays, duplicates: 0, faults: 0 }
    }

    /// One more fault, and how long it took with everything.
    pub fn count(&mut self, event: Event, took: Duration) {
        let all = self.relays * self.in_flight;
        let times = |length: Duration| (took.as_millis() / length.as_millis()) as usize;
        self.faults += 1;
        self.duplicates += match event {
            Event::Kill(_) | Event::Freeze(..) => self.in_flight,
            Event::Roll(_) | Event::CutCommits(_) => 0,
            Event::KillStore(_) | Event::StopStore(_) | Event::StoreNetwork(..) => all,
            Event::FillDisk(_) => all * (1 + times(self.lease)),
            Event::KillSink(_) | Event::FreezeSink(_) | Event::SinkNetwork(..) => all * (2 + times(self.publish)),
        };
    }

    /// How many faults.
    pub fn faults(&self) -> usize {
        self.faults
    }
}

/// All that is looked at.
pub struct Scene<'a> {
    pub plan: &'a Plan,
    pub place: &'a Place,
    pub broker: &'a Broker,
    pub tell: Tell<'a>,
}

impl Scene<'_> {
    /// Waits for rest and judges.
    pub async fn conclude(self, fleet: Fleet, told: Told, bound: Bound) -> Result<Verdict> {
        let began = Instant::now();
        let mut broken: Vec<String> = self.until_rest().await.err().into_iter().map(|e| format!("I2: {e:#}")).collect();
        let rested_after = began.elapsed();
        let settings = fleet.settings();
        let (scraped, gauges) = scrape(&fleet, self.place).await?;
        broken.extend(gauges);
        let listed = self.dead_list(&fleet).await?;
        let (relays_started, exact_counters) = (fleet.started(), scraped.exact(self.plan.store != Kind::Sqlite));
        let printed = fleet.stop().await?;
        self.broker.until_read().await?;
        let (rows, changes) = outbox(&self.place.source).await?;
        let ledger = producers::ledger(&self.place.source).await?;
        let (arrivals, grain) = (self.broker.take(), self.place.clock_grain());
        let drops_repeats = self.plan.broker.drops_repeats();
        let evidence = Evidence { ledger, rows, arrivals, changes, grain, drops_repeats };
        let there: HashSet<Uuid> = evidence.rows.iter().map(|row| row.id).collect();
        let (commits_cut, carried_out) = (self.place.commits_cut(), told.carried_out(&there));
        broken.extend(told.judge(&there));
        if carried_out < commits_cut {
            broken.push(format!(
                "coverage: {commits_cut} replies to COMMIT were cut, and only {carried_out} transactions of unknown end are there"
            ));
        }
        let bounds = Bounds {
            duplicates: bound.duplicates as i64,
            max_attempts: MAX_ATTEMPTS,
            overdue: settings.overdue(),
            told: told.committed.clone(),
        };
        broken.extend(judge(&evidence, &bounds));
        broken.extend(scraped.judge(&evidence.changes));
        let leases_lost = printed.values().map(|found| found.leases_lost).sum();
        broken.extend(self.gentle(&evidence, leases_lost));
        let pages = scraped.pages.iter().map(String::as_str).chain([listed.as_str()]);
        let shown = pages.flat_map(leaks).chain(printed.values().flat_map(|found| found.leaks.clone()));
        broken.extend(shown.take(3).map(|line| format!("I10: a secret is in `{line}`")));
        broken.extend(self.in_errors().await?);
        broken.extend(self.place.integrity().await?.map(|said| format!("R37: the file is damaged: {said}")));
        Ok(Verdict {
            plan: self.plan.clone(),
            faults: bound.faults,
            report: report(&evidence),
            most_duplicates: bounds.duplicates,
            told,
            commits_cut,
            carried_out,
            coverage: Coverage::default(),
            connected: (self.place.relays_connected(), self.broker.way().accepted()),
            leases_lost,
            relays_started,
            exact_counters,
            bytes_searched: printed.values().map(|found| found.bytes).sum(),
            slowest_resumption: Duration::ZERO,
            took: Duration::ZERO,
            rested_after,
            broken,
        })
    }

    async fn until_rest(&self) -> Result<()> {
        let (mut told_at, mut moved_at, mut before) = (Instant::now(), Instant::now(), usize::MAX);
        loop {
            let open = self.place.open().await?;
            if open == 0 {
                return self.broker.until_read().await;
            }
            if open != before {
                (moved_at, before) = (Instant::now(), open);
            }
            anyhow::ensure!(moved_at.elapsed() < STANDSTILL, "{open} messages are open, and nothing moves any more");
            if told_at.elapsed() > TELL_EVERY {
                told_at = Instant::now();
                (self.tell)(&format!("{open} messages are open, {} arrived", self.broker.arrivals()));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Without faults, and with relays that are replaced in good order, nothing is lost, repeated or tried twice.
    fn gentle(&self, evidence: &Evidence, leases_lost: usize) -> Vec<String> {
        if !self.plan.is_gentle() {
            return Vec::new();
        }
        let spent = evidence.rows.iter().filter(|row| row.attempts != 1).count();
        let mut broken = Vec::new();
        if spent > 0 {
            broken.push(format!("R27: {spent} messages took more than one attempt"));
        }
        if leases_lost > 0 {
            broken.push(format!("R19: {leases_lost} leases were lost, and nothing had gone wrong"));
        }
        broken
    }

    /// What an operator is shown of dead messages: neither contents nor secrets.
    async fn dead_list(&self, fleet: &Fleet) -> Result<String> {
        let Some(member) = fleet.members.first() else { return Ok(String::new()) };
        let mut command = Command::new(&self.plan.binary);
        command.args(["dead", "list", "--config"]).arg(fleet.configuration_of(&member.account)).stdin(Stdio::null());
        let ended = command.output().await.context("cannot run `postrider dead list`")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        anyhow::ensure!(ended.status.success(), "`postrider dead list` failed: {}", text(&ended.stderr));
        Ok(text(&ended.stdout) + &text(&ended.stderr))
    }

    async fn in_errors(&self) -> Result<Option<String>> {
        let sql = "select count(*) from outbox_messages where last_error like '%canary-of-the-%'";
        let count = self.place.source.count(sql).await?;
        Ok((count > 0).then(|| format!("I10: {count} error texts hold a secret")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;

    #[test]
    fn i4_the_bound_grows_with_each_fault_by_what_it_may_repeat() {
        let mut plan = Plan::new("/bin/sh", Kind::Postgres, 1).short();
        let settings = Settings::of(&plan);
        let mut bound = Bound::new(settings, 3);
        let mut grows = |event, expected| {
            let before = bound.duplicates;
            bound.count(event, Duration::from_secs(5));
            assert_eq!(bound.duplicates - before, expected, "{event}");
        };
        grows(Event::Roll(0), 0);
        grows(Event::CutCommits(5), 0);
        grows(Event::Kill(0), 64);
        grows(Event::StopStore(Duration::ZERO), 3 * 64);
        grows(Event::SinkNetwork(Mode::HalfOpen, Duration::from_secs(3)), 3 * 64 * 4);
        grows(Event::FillDisk(Duration::from_secs(3)), 3 * 64 * 2);
        assert_eq!(bound.faults(), 6);
        plan.faults.clear();
        assert!(Settings::of(&plan).lease > settings.lease, "without faults nothing may look like one");
    }
}
