//! Draining with bare SQL: claim a batch, hand it on, ack it, until nothing is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use postrider::store::Payload;
use postrider::{ClaimedMessage, Lease, Outcome, RowAddress, Sink};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Stage, fill, held};
use crate::bench::bare::Loop;
use crate::bench::ledger::Ledger;
use crate::bench::letter::{Letters, NAMESPACE};
use crate::bench::meter::Meter;
use crate::bench::scenario::{Order, Parameters};
use crate::bench::server::{Site, Table};

/// Before a message is sent again.
const PAUSE: Duration = Duration::from_millis(1);
/// A sink that takes nothing for so long takes nothing any more.
const STALLED_AFTER: Duration = Duration::from_secs(90);

/// Fills a table and drains it with as many loops as the scenario has relays.
pub async fn run(stage: Stage<'_>, site: &dyn Site, table: Table) -> Result<super::Outcome> {
    let with = &stage.scenario.with;
    fill(stage, site, table).await?;
    site.settle_down().await?;
    let snapshot = held(stage, site).await?;
    let (ledger, handling) = (Arc::new(unordered(with)), Handling::of(stage));
    let mut loops = JoinSet::new();
    let mut ready = Vec::new();
    for _ in 0..with.relays {
        ready.push(site.bare(table, with.batch, with.ack).await?);
    }
    let meter = Meter::start(stage.server).await?;
    for bare in ready {
        loops.spawn(until_empty(bare, ledger.clone(), handling.clone()));
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    let measured = meter.stop(with.messages).await?;
    drop(snapshot);
    Ok(super::Outcome { measured, broken: ledger.verdict() })
}

/// The loop promises no order.
pub fn unordered(with: &Parameters) -> Ledger {
    Ledger::new(with.messages, &Parameters { order: Order::None, ..with.clone() })
}

pub async fn until_empty(mut bare: Box<dyn Loop>, ledger: Arc<Ledger>, handling: Handling) -> Result<()> {
    loop {
        let numbers = bare.claim().await?;
        if numbers.is_empty() {
            return Ok(());
        }
        handling.hand_on(&numbers, &ledger).await?;
        bare.ack().await?;
    }
}

/// What the loop does with a batch: the same that the relay's sink does.
#[derive(Clone)]
pub enum Handling {
    Note,
    Slow { delay: Duration, batch: usize, calls: usize },
    Sink { sink: Arc<dyn Sink>, letters: Letters, calls: usize },
}

impl Handling {
    pub fn of(stage: Stage<'_>) -> Self {
        let with = &stage.scenario.with;
        match stage.sink {
            Some(sink) => Self::Sink { sink: sink.clone(), letters: Letters::of(with), calls: with.concurrency },
            None if with.delay_ms > 0 => {
                Self::Slow { delay: with.delay(), batch: with.sink_batch, calls: with.concurrency }
            }
            None => Self::Note,
        }
    }

    pub async fn hand_on(&self, numbers: &[u32], ledger: &Ledger) -> Result<()> {
        match self {
            Self::Note => numbers.iter().for_each(|n| ledger.note_number(*n)),
            Self::Slow { delay, batch, calls } => {
                let call = |numbers: &[u32]| {
                    numbers.iter().for_each(|n| ledger.note_number(*n));
                    tokio::time::sleep(*delay)
                };
                stream::iter(numbers.chunks(*batch).map(call)).buffer_unordered(*calls).collect::<Vec<()>>().await;
            }
            Self::Sink { sink, letters, calls } => {
                let messages: Vec<ClaimedMessage> = numbers.iter().map(|n| message(letters, *n)).collect();
                let call = |batch| until_delivered(&**sink, batch, ledger);
                let batches: Vec<_> = messages.chunks(sink.max_batch()).map(<[_]>::to_vec).collect();
                let calls = (*calls).min(sink.concurrency().unwrap_or(usize::MAX)).max(1);
                stream::iter(batches.into_iter().map(call)).buffer_unordered(calls).try_collect::<Vec<()>>().await?;
            }
        }
        Ok(())
    }
}

/// Sends a batch, and what was not delivered of it again: a sink that has no room asks for that.
async fn until_delivered(sink: &dyn Sink, mut batch: Vec<ClaimedMessage>, ledger: &Ledger) -> Result<()> {
    let mut since = Instant::now();
    loop {
        let (before, mut last) = (batch.len(), None);
        let mut outcomes = sink.publish(&batch).await.into_iter();
        let mut again = Vec::new();
        for message in batch {
            match outcomes.next() {
                Some(outcome) if outcome.is_delivered() => ledger.note(message.payload.as_bytes()),
                Some(Outcome::Reject(why) | Outcome::Unsendable(why)) => bail!("the sink refused a message: {why}"),
                outcome => {
                    last = outcome;
                    again.push(message);
                }
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        if again.len() < before {
            since = Instant::now();
        }
        if since.elapsed() > STALLED_AFTER {
            bail!("the sink does not take {} messages; it says of one of them: {last:?}", again.len());
        }
        batch = again;
        tokio::time::sleep(PAUSE).await;
    }
}

/// A message as a relay would have claimed it.
fn message(letters: &Letters, n: u32) -> ClaimedMessage {
    let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
    ClaimedMessage::new(lease, NAMESPACE.into(), "letter".into(), Payload::Json(letters.text(n)))
}
