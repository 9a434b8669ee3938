//! The real dispatcher on the store in memory, while time stands still and one seed decides chance: relays are killed
//! between any two of their calls, stand still, and are restarted; statements, publishes and their answers get lost or come
//! late; the database's clock jumps. After every run the checkers I1 to I8 must hold.
//!
//! `POSTRIDER_SIM_SEEDS=200000` runs more seeds, `POSTRIDER_SIM_SEED=123` one, and prints its story. How to read it is in
//! `CONTRIBUTING.md`.

#![allow(missing_docs)]

#[path = "simulation/books.rs"]
mod books;
#[path = "simulation/chance.rs"]
mod chance;
#[path = "simulation/check.rs"]
mod check;
#[path = "simulation/counts.rs"]
mod counts;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/process.rs"]
mod process;
#[path = "simulation/producer.rs"]
mod producer;
#[path = "simulation/relay.rs"]
mod relay;
#[path = "simulation/rows.rs"]
mod rows;
#[path = "simulation/run.rs"]
mod run;
#[path = "simulation/sabotage.rs"]
mod sabotage;
#[path = "simulation/seeds.rs"]
mod seeds;
#[path = "simulation/sink.rs"]
mod sink;
#[path = "simulation/store.rs"]
mod store;
#[path = "simulation/story.rs"]
mod story;
#[path = "simulation/weather.rs"]
mod weather;
#[path = "simulation/world.rs"]
mod world;
