//! What happens to rows that nobody holds: sweep, purge, and counting them.

use std::time::Duration;

use postrider_core::state::{Event, State, transition};
use postrider_core::store::{Finished, Purge, Scope, Stats, Swept};
use uuid::Uuid;

use super::table::{StoredMessage, Table};
use crate::clock::{between, micros};

impl Table {
    pub fn sweep(&mut self, scope: &Scope, max_attempts: i32, limit: u32, now: i64) -> Swept {
        let suspects = self
            .in_scope(scope)
            .any(|row| row.is_expired(now) && !row.is_spent(max_attempts) && row.is_suspect(max_attempts));
        let crashed = self.oldest(
            scope,
            limit,
            |row| row.is_expired(now) && row.is_spent(max_attempts),
            |row| row.locked_until_micros,
        );
        let spent = self.oldest(
            scope,
            limit,
            |row| row.is_due(now) && row.is_spent(max_attempts),
            |row| Some(row.next_attempt_at_micros),
        );
        let buried = crashed.into_iter().chain(spent).filter_map(|seq| self.give_up(seq, now)).collect();
        Swept { buried, suspects }
    }

    fn give_up(&mut self, seq: i64, now: i64) -> Option<Uuid> {
        let row = self.rows.get_mut(&seq)?;
        let (attempts, before) = (row.attempts, row.status);
        row.settle(transition(before, Event::Sweep)?, now);
        row.last_error = Some(match (before, row.last_error.take()) {
            (State::Pending, Some(error)) => format!("{error} (given up: all {attempts} attempts are spent)"),
            (State::Pending, None) => format!("(given up: all {attempts} attempts are spent)"),
            _ => format!(
                "delivery unknown: the worker of the last allowed attempt ({attempts}) stopped before it said how the attempt ended"
            ),
        });
        Some(row.id)
    }

    pub fn purge(&mut self, purge: &Purge, now: i64) -> u64 {
        let rows = self.old(purge, now);
        rows.iter().for_each(|seq| self.delete(*seq));
        rows.len() as u64
    }

    /// The rows that a purge deletes.
    pub fn old(&self, purge: &Purge, now: i64) -> Vec<i64> {
        let finished_at = |row: &StoredMessage| match (purge.finished, row.status) {
            (Finished::Delivered, State::Delivered) => row.delivered_at_micros,
            (Finished::Dead, State::Dead) => Some(row.updated_at_micros),
            _ => None,
        };
        let latest = now.saturating_sub(micros(purge.older_than));
        let old = |row: &StoredMessage| finished_at(row).is_some_and(|at| at <= latest);
        self.oldest(&purge.scope, purge.limit, old, finished_at)
    }

    pub fn stats(&self, scope: &Scope, now: i64) -> Stats {
        let mut stats = Stats::default();
        for row in self.in_scope(scope) {
            match row.status {
                State::Pending => stats.pending += 1,
                State::Processing => stats.processing += 1,
                State::Dead => stats.dead += 1,
                State::Delivered => {}
            }
            if row.is_due(now) {
                stats.due += 1;
                stats.oldest_due = stats.oldest_due.max(between(row.next_attempt_at_micros, now));
            }
        }
        stats
    }

    pub fn next_due(&self, scope: &Scope, now: i64) -> Option<Duration> {
        self.next_after(scope, now, i64::MIN)
    }

    /// When the next row becomes eligible, of those that were not before `start`.
    pub fn next_after(&self, scope: &Scope, now: i64, start: i64) -> Option<Duration> {
        let times = self.in_scope(scope).filter_map(|row| match row.status {
            State::Pending => Some(row.next_attempt_at_micros),
            State::Processing => row.locked_until_micros,
            State::Delivered | State::Dead => None,
        });
        times.filter(|due_at| *due_at >= start).min().map(|due_at| between(now, due_at))
    }

    pub fn in_scope<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a StoredMessage> {
        self.rows.values().filter(|row| scope.contains(&row.namespace, row.tenant_id))
    }

    /// The first rows that are meant, by a time.
    pub fn oldest(
        &self,
        scope: &Scope,
        limit: u32,
        meant: impl Fn(&StoredMessage) -> bool,
        time: impl Fn(&StoredMessage) -> Option<i64>,
    ) -> Vec<i64> {
        let mut rows: Vec<_> = self.in_scope(scope).filter(|row| meant(row)).map(|row| (time(row), row.seq)).collect();
        rows.sort_unstable();
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        rows.into_iter().map(|(_, seq)| seq).collect()
    }
}
