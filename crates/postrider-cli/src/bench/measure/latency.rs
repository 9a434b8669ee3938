//! Latency under a load of so many messages a second.
//!
//! Message *n* is to be written at *n* / rate after the beginning, whether or not earlier ones took their time: a client that is late writes
//! at once, and its lateness counts (no coordinated omission). Clients are threads, because the runtime's timer has a resolution of
//! a millisecond, as much as what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bare_loop::unordered;
use super::drain::{Relay, settled};
use super::{Outcome, Side, Stage};
use crate::bench::bare::Loop;
use crate::bench::ledger::Ledger;
use crate::bench::letter::Letters;
use crate::bench::meter::{Latency, Measured, Meter};
use crate::bench::scenario::Parameters;
use crate::bench::server::{Client, Site};
use crate::bench::sink::Noted;

/// How often the bare loop looks again when it found nothing.
const POLL: Duration = Duration::from_millis(5);
/// The relay has started, and sleeps.
const WARM_UP: Duration = Duration::from_millis(300);

pub async fn run(stage: Stage<'_>, site: &dyn Site, side: Side) -> Result<Outcome> {
    let messages = stage.scenario.with.load();
    let with = &Parameters { messages, ..stage.scenario.with.clone() };
    let letters = Letters::of(with);
    let mut clients = Vec::new();
    for _ in 0..with.clients {
        clients.push(site.client(side.table(), &letters).await?);
    }
    site.settle_down().await?;
    let reader = Reader::start(stage, site, side, with).await?;
    tokio::time::sleep(WARM_UP).await;
    let meter = Meter::start(stage.server).await?;
    let load = Arc::new(Load::new(with, &reader.ledger));
    load.clone().run(clients).await?;
    let complete = reader.ledger.complete().await;
    let measured = meter.stop(messages).await?;
    let ledger = reader.ledger.clone();
    let abandoned = reader.stop().await?;
    let mut broken = ledger.verdict();
    if complete.is_ok() && side == Side::Ours {
        broken.extend(settled(site, abandoned).await?);
    }
    let (latency, pick_up) = load.latencies(&ledger)?;
    let measured = Measured { latency: Some(latency), pick_up: Some(pick_up), ..measured };
    Ok(Outcome { measured, broken })
}

/// Whoever takes the messages.
struct Reader {
    ledger: Arc<Ledger>,
    relay: Option<Relay>,
    bare: JoinSet<Result<()>>,
    stop: CancellationToken,
}

impl Reader {
    async fn start(stage: Stage<'_>, site: &dyn Site, side: Side, with: &Parameters) -> Result<Self> {
        let (stop, mut bare) = (CancellationToken::new(), JoinSet::new());
        if side == Side::Ours {
            let ledger = Arc::new(Ledger::new(with.messages, with).timed());
            let sink = Arc::new(Noted::new(ledger.clone(), &stage.scenario.with));
            let relay = Some(Relay::start(site.store(), sink, with)?);
            return Ok(Self { ledger, relay, bare, stop });
        }
        let ledger = Arc::new(unordered(with).timed());
        let reading = site.bare(side.table(), with.batch, with.ack).await?;
        bare.spawn(poll(reading, ledger.clone(), stop.clone()));
        Ok(Self { ledger, relay: None, bare, stop })
    }

    /// Answers how many publishes were cut off.
    async fn stop(mut self) -> Result<usize> {
        self.stop.cancel();
        while let Some(ended) = self.bare.join_next().await {
            ended??;
        }
        match self.relay {
            Some(relay) => relay.stop().await,
            None => Ok(0),
        }
    }
}

/// The bare loop that looks again and again.
async fn poll(mut bare: Box<dyn Loop>, ledger: Arc<Ledger>, stop: CancellationToken) -> Result<()> {
    while !stop.is_cancelled() {
        let numbers = bare.claim().await?;
        if numbers.is_empty() {
            tokio::time::sleep(POLL).await;
            continue;
        }
        numbers.into_iter().for_each(|n| ledger.note_number(n));
        bare.ack().await?;
    }
    Ok(())
}

/// Who writes what, and when.
pub struct Load {
    messages: u32,
    clients: u32,
    /// Between two messages.
    interval: f64,
    /// Since the beginning of the ledger, when the first is to be written.
    begins: Duration,
    ledger: Arc<Ledger>,
    /// When each was begun to be written, in nanoseconds since the beginning of the ledger.
    begun: Vec<AtomicU64>,
    /// The benchmark was stopped.
    ended: AtomicBool,
}

impl Load {
    pub fn new(with: &Parameters, ledger: &Arc<Ledger>) -> Self {
        Self {
            messages: with.messages,
            clients: with.clients,
            interval: 1.0 / f64::from(with.rate),
            begins: ledger.began().elapsed() + Duration::from_millis(10),
            ledger: ledger.clone(),
            begun: (0..with.messages).map(|_| AtomicU64::new(0)).collect(),
            ended: AtomicBool::new(false),
        }
    }

    fn due(&self, n: u32) -> Duration {
        self.begins + Duration::from_secs_f64(self.interval * f64::from(n))
    }

    /// Writes everything. Client *c* writes every so many-th message, so that a key is written by one client.
    pub async fn run(self: Arc<Self>, clients: Vec<Box<dyn Client>>) -> Result<()> {
        let _stop = Ending(self.clone());
        let mut writing = JoinSet::new();
        for (first, mut client) in (0..).zip(clients) {
            let (load, runtime) = (self.clone(), Handle::current());
            writing.spawn_blocking(move || {
                for n in (first..load.messages).step_by(load.clients as usize) {
                    let (now, due) = (load.ledger.began().elapsed(), load.due(n));
                    std::thread::sleep(due.saturating_sub(now));
                    if load.ended.load(Ordering::Relaxed) {
                        break;
                    }
                    let begun = load.ledger.began().elapsed().as_nanos() as u64;
                    load.begun[n as usize].store(begun, Ordering::Relaxed);
                    runtime.block_on(client.write(n, 1))?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = writing.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// From when each was to be written, and from when it was begun to be written.
    pub fn latencies(&self, ledger: &Ledger) -> Result<(Latency, Latency)> {
        let arrived: Vec<(u32, Duration)> = ledger.times().filter_map(|(n, at)| Some((n, at?))).collect();
        let begun = |n: u32| Duration::from_nanos(self.begun[n as usize].load(Ordering::Relaxed));
        let since_due = arrived.iter().map(|(n, at)| at.saturating_sub(self.due(*n)));
        let since_begun = arrived.iter().map(|(n, at)| at.saturating_sub(begun(*n)));
        Ok((Latency::of(since_due)?, Latency::of(since_begun)?))
    }
}

/// Threads cannot be dropped, so they are told.
struct Ending(Arc<Load>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}
