//! One run: a seed decides everything. The storm, clearing up, coming to rest, and the checkers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use postrider::State;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::chance::Chance;
use super::check::{Overdue, check};
use super::counts::Counts;
use super::plan::Plan;
use super::producer::Producer;
use super::sabotage::Sabotage;
use super::story::Story;
use super::weather::Weather;
use super::world::{World, pause};

/// The longest time to come to rest, of the simulation's.
const PATIENCE: Duration = Duration::from_secs(300);

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub breaches: Vec<String>,
    pub counts: Counts,
    /// Empty unless it was asked for.
    pub story: String,
}

/// Runs a seed, with its story if that is wanted.
pub fn run(seed: u64, told: bool, sabotage: Option<Sabotage>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without threads and sockets can be made");
    let done = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let (chance, story) = (Chance::new(seed), Story::new(told));
            let plan = Plan::draw(&chance);
            story.tell(|| format!("seed {seed}: {plan:?}"));
            let world = World::new(plan, chance, story.clone(), sabotage);
            let (breaches, counts) = live(&world).await;
            breaches.iter().for_each(|breach| story.tell(|| format!("BROKEN {breach}")));
            Report { breaches, counts, story: story.text() }
        })
    }));
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let what = format!("the run panicked: {}", text.unwrap_or_default());
        Report { breaches: vec![what.clone()], counts: Counts::default(), story: what }
    })
}

async fn live(world: &Arc<World>) -> (Vec<String>, Counts) {
    let mut producers = JoinSet::new();
    for number in 1..=world.plan.producers {
        producers.spawn(Producer { world: world.clone(), number }.run());
    }
    if let Some(sabotage @ (Sabotage::Meddled | Sabotage::GivenUp)) = world.sabotage {
        tokio::spawn(meddle(world.clone(), sabotage));
    }
    let mut weather = Weather::new(world.clone());
    weather.run().await;
    while let Some(done) = producers.join_next().await {
        done.expect("producers do not panic");
    }
    weather.clear_up(world.sabotage != Some(Sabotage::Deserted)).await;
    come_to_rest(world).await;
    weather.stop_all().await;
    // What is still under way to the database or to the destination gets there.
    pause(world.plan.publish_timeout + world.plan.lease * 3).await;
    check(world)
}

async fn come_to_rest(world: &World) {
    let (overdue, until) = (Overdue::new(world), Instant::now() + PATIENCE);
    while world.books().rows.values().any(|row| row.is_open()) {
        if let Some(breach) = overdue.breach(world) {
            return world.books().breach(breach);
        }
        if Instant::now() > until {
            return;
        }
        pause(world.plan.poll).await;
    }
    world.story.tell(|| "all is at rest".into());
}

/// Writes into the table behind everybody's back.
async fn meddle(world: Arc<World>, sabotage: Sabotage) {
    let (from, to) = match sabotage {
        Sabotage::Meddled => (State::Delivered, State::Pending),
        _ => (State::Pending, State::Dead),
    };
    loop {
        let row = world.store.enqueued().into_iter().find(|row| row.status == from);
        if let Some(row) = row {
            world.store.edit(row.id, |row| row.status = to);
            return;
        }
        pause(world.plan.poll).await;
    }
}
