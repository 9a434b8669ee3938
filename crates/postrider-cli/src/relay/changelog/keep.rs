//! How a carrier keeps its lease and writes its position, while the sink or the database takes its time.

use std::future::Future;
use std::pin::{Pin, pin};

use postrider_changelog::ChangelogError;
use tokio::time::{Instant, timeout, timeout_at};

use super::Carrier;
use super::hold::{Hold, Unwritten};

impl Carrier {
    /// Writes how far the route has got, if it has got further.
    pub(super) async fn write(&self, hold: &mut Hold) -> Result<(), ChangelogError> {
        let Some(cursor) = hold.unwritten.cursor else { return Ok(()) };
        let now = Instant::now();
        self.ask(hold.held.advance(cursor)).await?;
        (hold.unwritten, hold.renewed) = (Unwritten::none(), now);
        Ok(())
    }

    /// Renews the lease, and writes what is not written yet with it: if its answer was lost it is written once more, and what
    /// is read next begins after it.
    pub(super) async fn resume(&self, hold: &mut Hold) -> Result<(), ChangelogError> {
        match hold.unwritten.cursor {
            Some(_) => self.write(hold).await,
            None => self.renew(hold).await,
        }
    }

    /// Runs something that may take long, and keeps the lease and writes the position meanwhile. It is given up when the lease
    /// is lost, or cannot be renewed before it ends.
    pub(super) async fn keep<T>(&self, hold: &mut Hold, work: impl Future<Output = T>) -> Result<T, ChangelogError> {
        let mut work = pin!(work);
        let mut due = hold.due(self.tick);
        loop {
            if let Ok(done) = timeout_at(due, &mut work).await {
                return Ok(done);
            }
            let ends = hold.renewed + self.lease;
            let (done, resumed) = beside(work.as_mut(), timeout_at(ends, self.resume(hold))).await;
            if let Some(done) = done {
                return Ok(done);
            }
            due = match resumed {
                Ok(Ok(())) => hold.due(self.tick),
                Ok(Err(error)) if error.is_transient() && Instant::now() < ends => Instant::now() + self.tick / 4,
                Ok(Err(error)) => return Err(error),
                Err(elapsed) => return Err(ChangelogError::Unavailable(Box::new(elapsed))),
            };
        }
    }

    /// Renews the lease if a good part of it is over: nothing is published under one that may have ended.
    pub(super) async fn renew_in_time(&self, hold: &mut Hold) -> Result<(), ChangelogError> {
        match hold.renewed.elapsed() >= self.tick {
            true => self.renew(hold).await,
            false => Ok(()),
        }
    }

    async fn renew(&self, hold: &mut Hold) -> Result<(), ChangelogError> {
        let now = Instant::now();
        self.ask(hold.held.renew()).await?;
        hold.renewed = now;
        Ok(())
    }

    /// Notes why the route does not get on, for operators to see.
    pub(super) async fn note(&self, hold: &mut Hold, why: &str) -> Result<(), ChangelogError> {
        let now = Instant::now();
        self.ask(hold.held.hold_back(why)).await?;
        hold.renewed = now;
        Ok(())
    }

    /// Asks the database, for no longer than a lease lasts: after that it is another relay's.
    pub(super) async fn ask<T>(
        &self,
        asked: impl Future<Output = Result<T, ChangelogError>>,
    ) -> Result<T, ChangelogError> {
        let answer = timeout(self.lease, asked).await;
        let answer = answer.unwrap_or_else(|elapsed| Err(ChangelogError::Unavailable(Box::new(elapsed))));
        if !matches!(answer, Err(ChangelogError::Unavailable(_))) {
            self.signs.answered();
        }
        answer
    }
}

/// Runs `other` to its end and the work beside it; what the work has come to, if it came to its end. A statement is not given
/// up half-way: one that writes a position late would write over a newer one.
async fn beside<T, U>(mut work: Pin<&mut impl Future<Output = T>>, other: impl Future<Output = U>) -> (Option<T>, U) {
    let mut other = pin!(other);
    let mut done = None;
    loop {
        tokio::select! {
            biased;
            came = &mut work, if done.is_none() => done = Some(came),
            other = &mut other => return (done, other),
        }
    }
}
