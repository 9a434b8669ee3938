//! Carries out one step of the schedule, and mends what it broke.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::broker::Broker;
use super::place::Place;
use super::relay::Fleet;
use super::schedule::Event;
use crate::{Mode, Signal, within};

/// The promise is ten seconds after the server is ready (R33).
const RESUMED_WITHIN: Duration = Duration::from_secs(10);
/// For how long deliveries are waited for at all.
const PATIENCE: Duration = Duration::from_secs(90);

/// What the faults of a run have in common.
pub struct Stage<'a> {
    /// The database.
    pub place: &'a Place,
    /// The destination.
    pub broker: &'a Broker,
    /// The relays.
    pub fleet: &'a mut Fleet,
    /// How long after a restart of the database the first message arrived, at worst.
    pub slowest_resumption: Duration,
    /// Promises that a single step broke.
    pub broken: Vec<String>,
}

impl Stage<'_> {
    /// Lets it happen.
    pub async fn carry_out(&mut self, event: Event) -> Result<()> {
        self.act(event).await.with_context(|| format!("while {event}"))
    }

    async fn act(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Kill(at) => self.fleet.kill(at, self.place, self.broker).await,
            Event::Roll(at) => self.fleet.roll(at, self.place, self.broker).await,
            Event::Freeze(at, time) => self.freeze(at, time).await,
            Event::KillStore(time) => {
                self.touch();
                self.place.kill().await?;
                self.bring_back(time).await
            }
            Event::StopStore(time) => {
                self.touch();
                self.place.stop().await?;
                self.bring_back(time).await
            }
            Event::StoreNetwork(mode, time) => {
                self.touch();
                let way = self.place.relays_way()?;
                way.set(mode);
                tokio::time::sleep(time).await;
                way.set(Mode::Pass);
                Ok(())
            }
            Event::SinkNetwork(mode, time) => {
                self.broker.way().set(mode);
                tokio::time::sleep(time).await;
                self.broker.way().set(Mode::Pass);
                Ok(())
            }
            Event::CutCommits(times) => self.place.cut_commits(times),
            Event::KillSink(time) => {
                self.broker.kill().await?;
                tokio::time::sleep(time).await;
                self.broker.restart().await
            }
            Event::FreezeSink(time) => {
                self.broker.signal(Signal::SIGSTOP)?;
                tokio::time::sleep(time).await;
                self.broker.signal(Signal::SIGCONT)
            }
            Event::FillDisk(time) => {
                self.touch();
                self.place.disk()?.fill()?;
                tokio::time::sleep(time).await;
                self.place.heal().await
            }
        }
    }

    /// From now on the relays that run may have done more than they know of.
    fn touch(&mut self) {
        self.fleet.members.iter_mut().for_each(|member| member.is_untouched = false);
    }

    async fn freeze(&mut self, at: usize, time: Duration) -> Result<()> {
        let member = &mut self.fleet.members[at];
        member.is_untouched = false;
        member.relay.signal(Signal::SIGSTOP)?;
        tokio::time::sleep(time).await;
        member.relay.signal(Signal::SIGCONT)
    }

    /// The server starts again; what is measured is from the moment that it lets clients in to the next arrival.
    async fn bring_back(&mut self, down: Duration) -> Result<()> {
        tokio::time::sleep(down).await;
        self.place.restart().await?;
        let (ready, before) = (Instant::now(), self.broker.arrivals());
        let open = "select count(*) from outbox_messages where status in ('pending', 'processing')";
        let goes_on = || async {
            self.broker.arrivals() > before || self.place.source.count(open).await.is_ok_and(|open| open == 0)
        };
        within(PATIENCE, "an arrival after the restart", goes_on).await?;
        let took = ready.elapsed();
        self.slowest_resumption = self.slowest_resumption.max(took);
        if took > RESUMED_WITHIN {
            self.broken
                .push(format!("R33: deliveries went on {took:?} after the restart, not within {RESUMED_WITHIN:?}"));
        }
        Ok(())
    }
}
