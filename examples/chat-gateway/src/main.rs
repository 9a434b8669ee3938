//! A chat gateway whose events reach Kafka through an outbox. Read `chat.rs` first, then `outbox.rs` and `publisher.rs`.
//!
//! `cargo run -p chat-gateway` starts a private PostgreSQL and Kafka, shows what the outbox keeps, and ends with 0 only if all of
//! it holds.

mod chat;
mod consumer;
mod criteria;
mod outbox;
mod publisher;
#[cfg(test)]
mod tests;
mod world;

use anyhow::Result;
use testkit::show::Proof;

use crate::publisher::Settings;
use crate::world::World;

#[tokio::main]
async fn main() -> Result<()> {
    let settings = Settings::read(|name| std::env::var(name).ok())?;
    println!("Starting a private PostgreSQL and Kafka …");
    let server = testkit::Postgres::start().await?;
    let world = World::open(&server).await?;
    println!("Kafka is played by {}; PostgreSQL is a real server.\n", world.plays_kafka());
    let mut proof = Proof::default();
    proof.tell("a message and its event are committed together", criteria::together(&world).await);
    proof.tell("events reach Kafka, looked for at an interval", criteria::reaches_kafka(&world, settings).await);
    let refused = [
        "what fails waits, says why, and is a dead letter in the end",
        "the operators' two questions are answered",
        "dead letters are listed, resent and purged",
    ];
    if world.kafka.is_real() {
        let why = "not shown on a real broker: nobody can tell it to refuse messages; without POSTRIDER_TEST_KAFKA it is shown";
        refused.iter().for_each(|criterion| proof.leave_out(criterion, why));
    } else {
        proof.tell(refused[0], criteria::failures(&world).await);
        proof.tell(refused[1], criteria::questions(&world).await);
        proof.tell(refused[2], criteria::dead_letters(&world).await);
    }
    proof.tell("two workers never publish the same record", criteria::workers_share(&world).await);
    proof.tell("an event that is published twice is handled once", criteria::handled_once(&world).await);
    proof.tell("records move only as the state machine says", criteria::picture(&world).await);
    proof.end()
}
