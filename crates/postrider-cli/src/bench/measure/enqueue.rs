//! Writing: clients with a connection each, as fast as they can for a while. Afterwards everything that they wrote is drained, so that it is
//! known to have been written once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use super::bare_loop::{Handling, until_empty};
use super::drain::{Relay, settled};
use super::{Outcome, Side, Stage};
use crate::bench::ledger::Ledger;
use crate::bench::letter::Letters;
use crate::bench::meter::Meter;
use crate::bench::scenario::Parameters;
use crate::bench::server::Site;
use crate::bench::sink::Noted;

pub async fn run(stage: Stage<'_>, site: &dyn Site, side: Side) -> Result<Outcome> {
    let with = &stage.scenario.with;
    let letters = Letters::of(with);
    let mut clients = Vec::new();
    for _ in 0..with.clients {
        clients.push(site.client(side.table(), &letters).await?);
    }
    site.settle_down().await?;
    let next = Arc::new(AtomicU32::new(0));
    let mut writing = JoinSet::new();
    let meter = Meter::start(stage.server).await?;
    let (began, lasts, each) = (Instant::now(), with.lasts(), with.per_transaction);
    for mut client in clients {
        let next = next.clone();
        writing.spawn(async move {
            while began.elapsed() < lasts {
                client.write(next.fetch_add(each, Ordering::Relaxed), each).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = writing.join_next().await {
        ended??;
    }
    let written = next.load(Ordering::Relaxed);
    let measured = meter.stop(written).await?;
    let broken = check(site, side, written).await?;
    Ok(Outcome { measured, broken })
}

/// Drains what was written.
async fn check(site: &dyn Site, side: Side, written: u32) -> Result<Vec<String>> {
    let with = Parameters { messages: written, sink_batch: 500, ..Parameters::default() };
    let ledger = Arc::new(Ledger::new(written, &with));
    if side != Side::Ours {
        let bare = site.bare(side.table(), with.batch, with.ack).await?;
        until_empty(bare, ledger.clone(), Handling::Note).await?;
        return Ok(ledger.verdict());
    }
    let relay = Relay::start(site.store(), Arc::new(Noted::new(ledger.clone(), &with)), &with)?;
    let complete = ledger.complete().await;
    let abandoned = relay.stop().await?;
    let mut broken = ledger.verdict();
    if complete.is_ok() {
        broken.extend(settled(site, abandoned).await?);
    }
    Ok(broken)
}
