//! A backlog beside millions of delivered rows: what a claim costs without them and with them, and draining with them there.
//!
//! The bare loop's table has no history: what is compared with it is the best case.

use std::time::{Duration, Instant};

use anyhow::Result;
use postrider::store::{ClaimOrder, ClaimRequest, Delivered, Order, Scope, Store};
use uuid::Uuid;

use super::{Ran, Round, Side, Stage, bare_loop, drain, fill};
use crate::bench::server::{Site, Table};

/// Rows are added in so many steps, for the progress bar.
const STEPS: u32 = 20;

pub async fn run(stage: Stage<'_>, rounds: u32) -> Result<Ran> {
    let site = stage.server.site().await?;
    let done = on(stage, &*site, rounds).await;
    site.close().await;
    done
}

async fn on(stage: Stage<'_>, site: &dyn Site, rounds: u32) -> Result<Ran> {
    let mut ran = Ran::default();
    let empty = claims(stage, site, rounds).await?;
    add_history(stage, site).await?;
    let full = claims(stage, site, rounds).await?;
    let ratios = full.iter().zip(&empty).map(|(full, empty)| full / empty).collect();
    ran.extra.insert("claim_ms_without_history".into(), empty);
    ran.extra.insert("claim_ms_with_history".into(), full);
    ran.extra.insert("claim_with_history_to_without".into(), ratios);
    for number in 1..=rounds {
        let mut round = Round::new();
        for side in [Side::Bare, Side::Ours] {
            stage.progress.now(stage.scenario, number, rounds, side);
            let outcome = match side {
                Side::Ours => drain::run(stage, site).await?,
                _ => bare_loop::run(stage, site, Table::Bare).await?,
            };
            ran.add(&mut round, side, outcome);
            stage.progress.step();
        }
        ran.rounds.push(round);
    }
    Ok(ran)
}

async fn add_history(stage: Stage<'_>, site: &dyn Site) -> Result<()> {
    let rows = stage.scenario.with.delivered;
    for step in 0..STEPS {
        stage.progress.say(format!("{}: adding {rows} delivered rows, {} %", stage.scenario.name, step * 100 / STEPS));
        let part = |step: u32| (u64::from(rows) * u64::from(step) / u64::from(STEPS)) as u32;
        site.add_delivered(part(step + 1) - part(step)).await?;
    }
    Ok(())
}

/// The mean time of a claim in each round, in milliseconds: a backlog is claimed and settled by the store's own verbs.
async fn claims(stage: Stage<'_>, site: &dyn Site, rounds: u32) -> Result<Vec<f64>> {
    let store = site.store();
    let mut means = Vec::new();
    for number in 1..=rounds {
        stage.progress.say(format!("{}: claims, round {number} of {rounds}", stage.scenario.name));
        fill(stage, site, Table::Ours).await?;
        site.settle_down().await?;
        means.push(claim_all(&*store, stage.scenario.with.batch).await?);
    }
    Ok(means)
}

async fn claim_all(store: &dyn Store, batch: u32) -> Result<f64> {
    let request = ClaimRequest {
        scope: Scope::all(),
        worker: Uuid::now_v7(),
        limit: batch,
        max_bytes: 64 << 20,
        lease: Duration::from_secs(60),
        max_attempts: 10,
        order: ClaimOrder::Due,
        waits: Order::None,
        followers: 0,
        thorough: true,
    };
    let (mut took, mut claims) = (Duration::ZERO, 0_u32);
    loop {
        let began = Instant::now();
        let claimed = store.claim(&request).await?;
        if claimed.messages.is_empty() {
            return Ok(took.as_secs_f64() * 1e3 / f64::from(claims.max(1)));
        }
        took += began.elapsed();
        claims += 1;
        let leases: Vec<_> = claimed.messages.into_iter().map(|message| message.lease).collect();
        store.ack(&leases, Delivered::Delete).await?;
    }
}
