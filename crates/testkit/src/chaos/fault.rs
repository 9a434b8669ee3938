//! Carries out one step of the schedule, sees to it that it hits something, and mends what it broke.
//!
//! A fault that comes while nothing goes on shows nothing. So there is load while one lasts, and one that has not hit anything yet
//! lasts longer, up to [`REACH`]; what it hit is written down.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::broker::Broker;
use super::coverage::Coverage;
use super::place::Place;
use super::plan::Act;
use super::producers::Producers;
use super::relay::Fleet;
use super::schedule::Event;
use crate::proxy::Proxy;
use crate::{Mode, Signal, within};

/// The promise is ten seconds after the server is ready (R33).
const RESUMED_WITHIN: Duration = Duration::from_secs(10);
/// For how long deliveries are waited for at all.
const PATIENCE: Duration = Duration::from_secs(90);
/// For how long a fault waits for something that it can hit.
const REACH: Duration = Duration::from_secs(20);
/// A full disk waits longer: databases have room in their files that is used up first.
const DISK_REACH: Duration = Duration::from_secs(60);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often there is more load if producers have nothing to do, and how much: some always, and more where it takes that.
const FEED_EVERY: Duration = Duration::from_millis(200);
const SOME: usize = 20;
const MUCH: usize = 100;
const VERY_MUCH: usize = 400;
/// A stopped relay's last statements are carried out without it within this time.
const SETTLED: Duration = Duration::from_millis(100);

/// What the faults of a run have in common.
pub struct Stage<'a> {
    place: &'a Place,
    /// The destination.
    pub broker: &'a Broker,
    fleet: &'a mut Fleet,
    /// The load.
    pub producers: &'a Producers,
    /// What was hit.
    pub coverage: Coverage,
    /// How long after a restart of the database the first message arrived, at worst.
    pub slowest_resumption: Duration,
    /// Promises that a single step broke.
    pub broken: Vec<String>,
}

impl<'a> Stage<'a> {
    /// Nothing has gone wrong yet.
    pub fn new(place: &'a Place, broker: &'a Broker, fleet: &'a mut Fleet, producers: &'a Producers) -> Self {
        let (coverage, slowest_resumption, broken) = (Coverage::default(), Duration::ZERO, Vec::new());
        Self { place, broker, fleet, producers, coverage, slowest_resumption, broken }
    }

    /// Lets it happen; answers how long that took.
    pub async fn carry_out(&mut self, event: Event) -> Result<Duration> {
        let began = Instant::now();
        let hit = self.act(event).await.with_context(|| format!("while {event}"))?;
        self.coverage.note(event.act(), hit);
        Ok(began.elapsed())
    }

    /// Answers what it hit.
    async fn act(&mut self, event: Event) -> Result<usize> {
        match event {
            Event::Kill(at) => self.kill(at).await,
            Event::Roll(at) => self.roll(at).await,
            Event::Freeze(at, time) => self.freeze(at, time).await,
            Event::KillStore(time) => {
                let connections = self.touch()?.connections();
                self.place.kill().await?;
                self.bring_back(time).await.map(|()| connections)
            }
            Event::StopStore(time) => {
                let connections = self.touch()?.connections();
                self.place.stop().await?;
                self.bring_back(time).await.map(|()| connections)
            }
            Event::StoreNetwork(mode, time) => {
                let way = self.touch()?;
                Ok(self.spoil(way, mode, time).await)
            }
            Event::SinkNetwork(mode, time) => Ok(self.spoil(self.broker.way(), mode, time).await),
            Event::CutCommits(times) => self.cut(times).await,
            Event::KillSink(time) => {
                self.broker.kill().await?;
                let waiting = self.without_sink(time).await;
                self.broker.restart().await?;
                waiting
            }
            Event::FreezeSink(time) => {
                self.broker.signal(Signal::SIGSTOP)?;
                let waiting = self.without_sink(time).await;
                self.broker.signal(Signal::SIGCONT)?;
                waiting
            }
            Event::FillDisk(time) => self.fill_disk(time).await,
        }
    }

    /// From now on the relays that run may have done more than they know of; answers their way to the database.
    fn touch(&mut self) -> Result<&'a Proxy> {
        self.fleet.members.iter_mut().for_each(|member| member.is_untouched = false);
        self.place.relays_way()
    }

    /// Lasts for so long, and if it has not hit anything by then until it has. There is load all the while.
    async fn hold<F: Future<Output = bool>>(&self, time: Duration, load: usize, has_hit: impl Fn() -> F) {
        self.hold_for(time, REACH, load, has_hit).await;
    }

    /// The same, with its own limit for what comes after that time.
    async fn hold_for<F>(&self, time: Duration, reach: Duration, load: usize, has_hit: impl Fn() -> F)
    where
        F: Future<Output = bool>,
    {
        let (began, mut fed) = (Instant::now(), None);
        while began.elapsed() < time || began.elapsed() < time + reach && !has_hit().await {
            self.feed(&mut fed, load);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn feed(&self, last: &mut Option<Instant>, load: usize) {
        if last.is_none_or(|last| last.elapsed() >= FEED_EVERY) {
            *last = Some(Instant::now());
            self.producers.feed(load);
        }
    }

    /// Until one has died with messages in its hand a kill waits for that; afterwards it comes as it comes.
    async fn kill(&mut self, at: usize) -> Result<usize> {
        let next = self.fleet.launch(self.place, self.broker).await?;
        if self.coverage.of(Act::Kill).hit == 0 {
            self.stop_while_it_holds(at).await?;
        }
        self.fleet.kill(at, next, self.place).await
    }

    async fn roll(&mut self, at: usize) -> Result<usize> {
        let next = self.fleet.launch(self.place, self.broker).await?;
        next.relay.until_it_delivers().await?;
        let held = self.until_held(at).await;
        self.fleet.replace(at, next).await?;
        Ok(held)
    }

    /// Waits until a relay has messages in its hand; answers how many.
    async fn until_held(&self, at: usize) -> usize {
        let (began, mut fed) = (Instant::now(), None);
        loop {
            let held = self.place.held(self.fleet.members[at].lease).await.unwrap_or(0);
            if held > 0 || began.elapsed() > REACH {
                return held;
            }
            self.feed(&mut fed, MUCH);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Nobody but the relay itself lets go of what it holds while its leases last. So what a stopped one does not hold any more
    /// was taken over.
    async fn freeze(&mut self, at: usize, time: Duration) -> Result<usize> {
        self.fleet.members[at].is_untouched = false;
        let held = self.stop_while_it_holds(at).await?;
        let (relay, lease) = (&self.fleet.members[at].relay, self.fleet.members[at].lease);
        let left = || async { self.place.held(lease).await.unwrap_or(held) };
        self.hold(time, SOME, || async { held == 0 || left().await < held }).await;
        let left = left().await;
        relay.signal(Signal::SIGCONT)?;
        Ok(held.saturating_sub(left))
    }

    /// Stops a relay, again and again until it has stopped with messages in its hand, and others can take them.
    async fn stop_while_it_holds(&self, at: usize) -> Result<usize> {
        let member = &self.fleet.members[at];
        let began = Instant::now();
        loop {
            self.until_held(at).await;
            member.relay.signal(Signal::SIGSTOP)?;
            tokio::time::sleep(SETTLED).await;
            let held = self.place.held(member.lease).await.unwrap_or(0);
            if held > 0 && self.place.has_let_go(&member.account).await || began.elapsed() > REACH {
                return Ok(held);
            }
            member.relay.signal(Signal::SIGCONT)?;
        }
    }

    /// A way is bad for a while; answers how many connections felt it.
    async fn spoil(&self, way: &Proxy, mode: Mode, time: Duration) -> usize {
        let before = way.harmed();
        way.set(mode);
        self.hold(time, SOME, || async { way.harmed() > before }).await;
        way.set(Mode::Pass);
        way.harmed() - before
    }

    /// Answers how many replies were cut.
    async fn cut(&self, times: usize) -> Result<usize> {
        let before = self.place.commits_cut();
        self.place.cut_commits(times)?;
        self.hold(Duration::ZERO, MUCH, || async { self.place.commits_cut() >= before + times }).await;
        Ok(self.place.commits_cut() - before)
    }

    /// Answers how many messages wait in the end.
    async fn without_sink(&self, time: Duration) -> Result<usize> {
        self.hold(time, SOME, || async { self.place.open().await.is_ok_and(|open| open > 0) }).await;
        self.place.open().await
    }

    /// Producers fail, with their whole transactions; relays go on, and deliver again when there is room (R37).
    async fn fill_disk(&mut self, time: Duration) -> Result<usize> {
        self.fleet.members.iter_mut().for_each(|member| member.is_untouched = false);
        let (disk, before) = (self.place.disk()?, self.producers.failed());
        disk.fill()?;
        let has_hit = || async { disk.fill().is_ok() && self.producers.failed() > before };
        self.hold_for(time, DISK_REACH, VERY_MUCH, has_hit).await;
        let failed = self.producers.failed() - before;
        self.place.heal().await?;
        self.until_it_goes_on().await?;
        let gone = self.fleet.gone();
        if !gone.is_empty() {
            self.broken.push(format!("R37: {} ended when the disk was full", gone.join(", ")));
        }
        Ok(failed)
    }

    /// The server starts again; what is measured is from the moment that it lets clients in to the next arrival.
    async fn bring_back(&mut self, down: Duration) -> Result<()> {
        tokio::time::sleep(down).await;
        self.place.restart().await?;
        let took = self.until_it_goes_on().await?;
        self.slowest_resumption = self.slowest_resumption.max(took);
        if took > RESUMED_WITHIN {
            self.broken
                .push(format!("R33: deliveries went on {took:?} after the restart, not within {RESUMED_WITHIN:?}"));
        }
        Ok(())
    }

    /// Waits for an arrival, if anything is open; answers how long that took.
    async fn until_it_goes_on(&self) -> Result<Duration> {
        let (ready, before) = (Instant::now(), self.broker.arrivals());
        let goes_on =
            || async { self.broker.arrivals() > before || self.place.open().await.is_ok_and(|open| open == 0) };
        within(PATIENCE, "an arrival after the database is back", goes_on).await?;
        Ok(ready.elapsed())
    }
}
