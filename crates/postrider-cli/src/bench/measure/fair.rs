//! How old the messages of small tenants become while a hot tenant's backlog waits, with a sink of bounded speed.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use postrider::{ClaimedMessage, Message, Sink};
use uuid::Uuid;

use super::drain::Relay;
use super::latency::Load;
use super::{Outcome, Stage};
use crate::bench::ledger::Ledger;
use crate::bench::letter::Letters;
use crate::bench::meter::{Measured, Meter};
use crate::bench::scenario::Parameters;
use crate::bench::server::{Client, Site, Table};

/// The hot tenant; the small ones come after it.
const HOT: u32 = 0;

pub async fn run(stage: Stage<'_>, site: &dyn Site) -> Result<Outcome> {
    let with = &stage.scenario.with;
    let letters = Letters::of(with);
    fill(site, with, &letters).await?;
    let small = Parameters { messages: with.load(), ..with.clone() };
    let (hot, ages) = (Ledger::new(with.messages, with), Arc::new(Ledger::new(small.messages, with).timed()));
    let sink = Arc::new(ByTenant { hot, small: ages.clone(), with: with.clone() });
    let client = OfTenants { client: site.client(Table::Ours, &letters).await?, letters, tenants: with.tenants };
    site.settle_down().await?;
    let meter = Meter::start(stage.server).await?;
    let relay = Relay::start(site.store(), sink.clone(), with)?;
    let load = Arc::new(Load::new(&small, &ages));
    load.clone().run(vec![Box::new(client)]).await?;
    let complete = ages.complete().await;
    let measured = meter.stop(sink.hot.arrived() + ages.arrived()).await?;
    relay.stop().await?;
    let [repeated, foreign, _] = sink.hot.faults();
    let mut broken = ages.verdict();
    if complete.is_ok() && repeated + foreign > 0 {
        broken.push(format!("{repeated} messages of the hot tenant arrived more than once, {foreign} from nowhere"));
    }
    let (latency, pick_up) = load.latencies(&ages)?;
    Ok(Outcome { measured: Measured { latency: Some(latency), pick_up: Some(pick_up), ..measured }, broken })
}

/// The hot tenant's backlog.
async fn fill(site: &dyn Site, with: &Parameters, letters: &Letters) -> Result<()> {
    let (mut client, most) = (site.client(Table::Ours, letters).await?, letters.per_statement());
    for from in (0..with.messages).step_by(most as usize) {
        let numbers = from..with.messages.min(from + most);
        client.write_messages(numbers.map(|n| letters.of_tenant(n, HOT)).collect()).await?;
    }
    Ok(())
}

/// Notes the hot tenant's messages and the others' apart, and takes its time for each.
struct ByTenant {
    hot: Ledger,
    small: Arc<Ledger>,
    with: Parameters,
}

#[async_trait]
impl Sink for ByTenant {
    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<postrider::Outcome> {
        for message in batch {
            let is_hot = message.tenant_id == Some(Uuid::from_u128(u128::from(HOT) + 1));
            let ledger = if is_hot { &self.hot } else { &*self.small };
            ledger.note(message.payload.as_bytes());
        }
        tokio::time::sleep(self.with.delay()).await;
        vec![postrider::Outcome::Accepted; batch.len()]
    }
}

/// Writes for the small tenants in turn.
struct OfTenants {
    client: Box<dyn Client>,
    letters: Letters,
    tenants: u32,
}

#[async_trait]
impl Client for OfTenants {
    async fn write(&mut self, first: u32, count: u32) -> Result<()> {
        let of_tenant = |n: u32| self.letters.of_tenant(n, HOT + 1 + n % self.tenants);
        self.client.write_messages((first..first + count).map(of_tenant).collect()).await
    }

    async fn write_messages(&mut self, messages: Vec<Message>) -> Result<()> {
        self.client.write_messages(messages).await
    }
}
