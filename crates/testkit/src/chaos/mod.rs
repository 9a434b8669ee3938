//! Chaos: real relays, databases and brokers, a seeded schedule of faults, and the checkers I1 to I10 at the end.
//!
//! Promise: [`run`] carries out a [`Plan`] and answers a [`Verdict`] with every invariant that is broken; it is an error only if
//! the run itself could not go on. What goes wrong when is chosen by the seed alone. All processes end with the run.
//!
//! ```text
//! producers ──proxy──► database ◄──proxy── relays ──proxy──► broker ──► consumer
//!     └ ledger            └ changes           └ logs, metrics              └ arrivals
//! ```
//!
//! | file | has |
//! |---|---|
//! | `plan.rs`, `schedule.rs` | what is asked for, and what happens when |
//! | `place.rs`, `disk.rs`, `broker.rs` | the servers and the ways to them |
//! | `message.rs`, `producers.rs`, `relay.rs` | the actors |
//! | `fault.rs`, `coverage.rs`, `rest.rs` | breaking it, what that hit, mending it, and waiting until nothing is open |
//! | `metrics.rs`, `secret.rs`, `verdict.rs` | I9, I10, and the outcome; I1 to I8 are the [checker](crate::checker)'s |

mod broker;
mod coverage;
mod disk;
mod fault;
mod message;
mod metrics;
mod place;
mod plan;
mod producers;
mod relay;
mod rest;
mod schedule;
mod secret;
mod verdict;

use std::time::Instant;

use anyhow::Result;

pub use coverage::{Coverage, Tally};
pub use plan::{Act, Broker, Fault, Goal, Kind, Length, Plan, SHORT};
pub use schedule::{Event, Schedule, Step};
pub use verdict::Verdict;

use fault::Stage;
use place::Place;
use producers::Producers;
use relay::Fleet;
use rest::Bound;

/// How many messages come between two faults where no number is given.
const PER_STEP: usize = 200;

/// Told what goes on, a line at a time.
pub type Tell<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Carries out a plan.
pub async fn run(plan: &Plan, tell: Tell<'_>) -> Result<Verdict> {
    plan.check()?;
    let place = Place::start(plan).await?;
    let broker = broker::Broker::start(plan.broker).await?;
    let mut fleet = Fleet::start(plan, &place, &broker).await?;
    tell(&format!("{} relays deliver from {} to {}", plan.relays, plan.store.word(), plan.broker.word()));
    let producers = Producers::start(&place, plan.seed).await?;
    let started = Instant::now();
    let mut bound = Bound::new(fleet.settings(), plan.relays);
    let mut stage = Stage::new(&place, &broker, &mut fleet, &producers);
    disturb(plan, &mut stage, &mut bound, tell).await?;
    let Stage { slowest_resumption, coverage, mut broken, .. } = stage;
    broken.extend(coverage.missed());
    let faults = bound.faults();
    tell(&format!("{faults} faults are over; the rest of the load comes, and then everything comes to rest"));
    producers.allow(plan.length.messages.unwrap_or(0));
    place.heal().await?;
    broker.heal().await?;
    let told = producers.finish().await?;
    let scene = rest::Scene { plan, place: &place, broker: &broker, tell };
    let took = started.elapsed();
    let mut verdict = scene.conclude(fleet, told, bound).await?;
    verdict.broken.extend(broken);
    (verdict.took, verdict.slowest_resumption, verdict.coverage) = (took, slowest_resumption, coverage);
    Ok(verdict)
}

/// Faults and load, until every limit is reached that was given.
async fn disturb(plan: &Plan, stage: &mut Stage<'_>, bound: &mut Bound, tell: Tell<'_>) -> Result<()> {
    let producers = stage.producers;
    let (started, mut told_at) = (Instant::now(), Instant::now());
    let Length { cycles, messages, time } = plan.length;
    let per_step = match (messages, cycles) {
        (Some(messages), Some(cycles)) if cycles > 0 => messages.div_ceil(cycles + 1),
        _ => PER_STEP,
    };
    for step in Schedule::new(plan) {
        let is_over = cycles.is_none_or(|cycles| step.number > cycles)
            && time.is_none_or(|time| started.elapsed() >= time)
            && (cycles.is_some() || time.is_some() || messages.is_none_or(|all| producers.committed() >= all));
        if is_over {
            break;
        }
        let all = messages.unwrap_or(usize::MAX);
        producers.allow((per_step * step.number).min(all));
        tokio::time::sleep(step.after).await;
        let took = stage.carry_out(step.event).await?;
        bound.count(step.event, took);
        if told_at.elapsed() > rest::TELL_EVERY {
            told_at = Instant::now();
            let (committed, arrived) = (producers.committed(), stage.broker.arrivals());
            tell(&format!("{step}; {committed} messages committed, {arrived} arrived"));
        }
    }
    Ok(())
}
