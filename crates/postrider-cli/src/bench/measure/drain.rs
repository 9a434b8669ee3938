//! Draining a backlog through the real dispatcher.

use std::sync::Arc;

use anyhow::Result;
use postrider::store::{Order, Store};
use postrider::{Dispatcher, Ended, Sink};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Outcome, Stage, fill, held};
use crate::bench::ledger::Ledger;
use crate::bench::meter::Meter;
use crate::bench::scenario::{self, Parameters};
use crate::bench::server::{Site, Table};
use crate::bench::sink::{Noted, Watched};

/// Fills the outbox and drains it.
pub async fn run(stage: Stage<'_>, site: &dyn Site) -> Result<Outcome> {
    fill(stage, site, Table::Ours).await?;
    site.settle_down().await?;
    let snapshot = held(stage, site).await?;
    let with = &stage.scenario.with;
    let ledger = Arc::new(Ledger::new(with.messages, with));
    let sink = sink(stage, &ledger);
    let meter = Meter::start(stage.server).await?;
    let relay = Relay::start(site.store(), sink, with)?;
    let complete = ledger.complete().await;
    let abandoned = relay.stop().await?;
    let measured = meter.stop(with.messages).await?;
    drop(snapshot);
    let mut broken = ledger.verdict();
    if complete.is_ok() {
        broken.extend(settled(site, abandoned).await?);
    }
    Ok(Outcome { measured, broken })
}

fn sink(stage: Stage<'_>, ledger: &Arc<Ledger>) -> Arc<dyn Sink> {
    match stage.sink {
        Some(sink) => Arc::new(Watched { ledger: ledger.clone(), sink: sink.clone() }),
        None => Arc::new(Noted::new(ledger.clone(), &stage.scenario.with)),
    }
}

/// What is wrong with the table after everything has arrived.
pub async fn settled(site: &dyn Site, abandoned: usize) -> Result<Option<String>> {
    let open = site.open().await?;
    Ok(match (open, abandoned) {
        (0, 0) => None,
        (0, _) => Some(format!("{abandoned} publishes were cut off")),
        _ => Some(format!("{open} rows are not delivered in the database, although their messages arrived")),
    })
}

/// A dispatcher that runs. It stops when this is dropped.
pub struct Relay {
    running: JoinHandle<Ended>,
    stop: CancellationToken,
    _guard: DropGuard,
}

impl Relay {
    pub fn start(store: Arc<dyn Store>, sink: Arc<dyn Sink>, with: &Parameters) -> Result<Self> {
        let order = if with.order == scenario::Order::Key { Order::Key } else { Order::None };
        let dispatcher = Dispatcher::builder_shared(store, sink)
            .batch_size(with.batch)
            .concurrency(with.concurrency)
            .delivered(with.ack.into())
            .order(order);
        let (stop, dispatcher) = (CancellationToken::new(), dispatcher.build()?);
        let running = tokio::spawn(dispatcher.run(stop.clone()));
        Ok(Self { running, _guard: stop.clone().drop_guard(), stop })
    }

    /// Stops it and waits until all is settled; answers how many publishes were cut off.
    pub async fn stop(self) -> Result<usize> {
        self.stop.cancel();
        Ok(self.running.await?.abandoned)
    }
}
