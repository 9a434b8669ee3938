//! Writing outcomes back, each behind the fence.

use std::time::Duration;

use postrider_core::lease::Lease;
use postrider_core::state::{Event, State, transition};
use postrider_core::store::{Bury, Delivered, Nack, Release, Settled};

use super::table::{StoredMessage, Table};
use crate::clock::micros;

impl Table {
    pub fn extend(&mut self, lease: &Lease, duration: Duration, now: i64) -> Option<Lease> {
        let row = self.leased(lease)?;
        row.locked_until_micros = Some(now.saturating_add(micros(duration)));
        row.updated_at_micros = now;
        Some(*lease)
    }

    pub fn ack(&mut self, lease: &Lease, then: Delivered, now: i64) -> Settled {
        let settled = self.settle(lease, Event::Ack, now, |row| row.delivered_at_micros = Some(now));
        // A producer's late retry must still find its dedupe key, so a row with one stays.
        let gone = self.by_id(lease.id).filter(|row| row.dedupe_key.is_none()).map(|row| row.seq);
        if let (Settled::Done, Delivered::Delete, Some(seq)) = (settled, then, gone) {
            self.delete(seq);
        }
        settled
    }

    pub fn nack(&mut self, nack: &Nack, now: i64) -> Settled {
        self.settle(&nack.lease, Event::Nack, now, |row| {
            row.last_error = Some(nack.error.clone());
            row.next_attempt_at_micros = now.saturating_add(micros(nack.delay));
        })
    }

    pub fn bury(&mut self, bury: &Bury, now: i64) -> Settled {
        self.settle(&bury.lease, Event::Bury, now, |row| row.last_error = Some(bury.error.clone()))
    }

    pub fn release(&mut self, release: &Release, now: i64) -> Settled {
        self.settle(&release.lease, Event::Release, now, |row| {
            row.attempts -= 1;
            if let Some(error) = &release.error {
                row.last_error = Some(error.clone());
            }
            if !release.delay.is_zero() {
                row.next_attempt_at_micros = now.saturating_add(micros(release.delay));
            }
        })
    }

    fn settle(&mut self, lease: &Lease, event: Event, now: i64, write: impl FnOnce(&mut StoredMessage)) -> Settled {
        let Some(row) = self.leased(lease) else { return Settled::LeaseLost };
        let Some(state) = transition(row.status, event) else { return Settled::LeaseLost };
        row.settle(state, now);
        write(row);
        Settled::Done
    }

    /// The fence: the row, if this very claim still holds it. Whether the lease ran out does not matter as long
    /// as nobody claimed the row again.
    fn leased(&mut self, lease: &Lease) -> Option<&mut StoredMessage> {
        self.by_id(lease.id).filter(|row| {
            row.status == State::Processing && row.locked_by == Some(lease.worker) && row.attempts == lease.attempt
        })
    }
}
