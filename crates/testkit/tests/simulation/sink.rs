//! The destination: takes its time, fails in every way that it may, and writes down what arrives.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider::{ClaimedMessage, Outcome, Sink};
use uuid::Uuid;

use super::books::Nature;
use super::process::Process;
use super::sabotage::Sabotage;
use super::world::{World, pause};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing arrives, and that is told.
    Fails,
    /// Nothing arrives, because there is no room.
    HasNoRoom,
    /// Nothing arrives, and nobody knows.
    UnclearLost,
    /// All arrives, and nobody knows.
    UnclearArrived,
    /// Nothing arrives, and nobody says so.
    Silent,
    /// All arrives, and nobody says so.
    SilentArrived,
    /// All arrives after the sender has given up.
    Late,
    Panics,
    PanicsArrived,
    /// The first arrives, and of the others nothing is said.
    Short,
}

const FAULTS: [Fault; 10] = [
    Fault::Fails,
    Fault::HasNoRoom,
    Fault::UnclearLost,
    Fault::UnclearArrived,
    Fault::Silent,
    Fault::SilentArrived,
    Fault::Late,
    Fault::Panics,
    Fault::PanicsArrived,
    Fault::Short,
];

/// One relay's connection to the destination.
pub struct Destination {
    pub world: Arc<World>,
    pub process: Arc<Process>,
}

impl Destination {
    fn fault(&self) -> Option<Fault> {
        let world = &self.world;
        if world.sink_is_down() {
            return Some(world.chance.pick(&[Fault::Fails, Fault::Silent]));
        }
        world.goes_wrong(world.plan.faults.sink).then(|| world.chance.pick(&FAULTS))
    }

    fn meet(&self, fault: Fault, batch: &[ClaimedMessage]) {
        let mut books = self.world.books();
        books.counts.sink_faults += 1;
        let is_told = matches!(fault, Fault::Fails | Fault::HasNoRoom);
        let again = matches!(fault, Fault::Panics | Fault::PanicsArrived) && batch.len() > 1;
        batch.iter().filter(|_| !is_told).for_each(|message| books.unclear(message, again));
        self.world.story.tell(|| format!("relay {}: the publish meets {fault:?}", self.process.number));
    }

    fn begin(&self, batch: &[ClaimedMessage]) {
        let now = self.world.now_micros();
        let mut books = self.world.books();
        batch.iter().for_each(|message| books.publishing(message, now));
        self.world.story.tell(|| {
            let each: String = batch.iter().map(|it| format!(" {}#{}", books.name(it.id), it.attempts)).collect();
            format!("relay {}: publish{each}", self.process.number)
        });
    }
}

#[async_trait]
impl Sink for Destination {
    fn max_batch(&self) -> usize {
        self.world.plan.sink_batch
    }

    fn keeps_order(&self) -> bool {
        self.world.plan.sink_keeps_order
    }

    async fn publish(&self, batch: &[ClaimedMessage]) -> Vec<Outcome> {
        let world = &self.world;
        self.process.pass(world, "a publish").await;
        self.begin(batch);
        let fault = self.fault();
        fault.into_iter().for_each(|fault| self.meet(fault, batch));
        if fault == Some(Fault::Late) {
            deliver_late(world.clone(), batch.to_vec());
            return std::future::pending().await;
        }
        pause(world.chance.part_of(world.plan.publish_takes)).await;
        if self.process.is_dead() {
            return std::future::pending().await;
        }
        let mut outcomes = match fault {
            None | Some(Fault::UnclearArrived | Fault::SilentArrived | Fault::PanicsArrived) => deliver(world, batch),
            Some(Fault::Short) => deliver(world, &batch[..1]),
            Some(_) => vec![Outcome::retry("it is down"); batch.len()],
        };
        match fault {
            Some(Fault::Silent | Fault::SilentArrived) => return std::future::pending().await,
            Some(Fault::UnclearLost | Fault::UnclearArrived) => {
                outcomes = vec![Outcome::Unknown("the connection broke".into()); batch.len()];
            }
            Some(Fault::HasNoRoom) => {
                outcomes = vec![Outcome::Busy { after: world.plan.poll, why: "it is full".into() }; batch.len()];
            }
            _ => {}
        }
        self.process.pass(world, "an outcome").await;
        if matches!(fault, Some(Fault::Panics | Fault::PanicsArrived)) {
            // A panic that no hook prints.
            resume_unwind(Box::new("the sink panics"));
        }
        outcomes
    }

    async fn ready(&self) -> Result<(), String> {
        self.process.pass(&self.world, "a trial").await;
        self.world.latency().await;
        if self.world.sink_is_down() { Err("it is down".into()) } else { Ok(()) }
    }
}

fn deliver_late(world: Arc<World>, batch: Vec<ClaimedMessage>) {
    tokio::spawn(async move {
        pause(world.plan.publish_timeout + world.chance.part_of(world.plan.lease)).await;
        world.story.tell(|| "a late publish gets there".into());
        deliver(&world, &batch);
    });
}

/// Takes messages one after the other. Where the sink keeps order, none of a key comes after one that was not taken.
fn deliver(world: &World, batch: &[ClaimedMessage]) -> Vec<Outcome> {
    let mut failed: HashSet<(Option<Uuid>, Option<&str>)> = HashSet::new();
    let mut outcomes = Vec::with_capacity(batch.len());
    for message in batch {
        let line = (message.tenant_id, message.key.as_deref());
        let waits = world.plan.sink_keeps_order && message.key.is_some() && failed.contains(&line);
        let outcome = match waits {
            true => Outcome::Busy { after: Duration::ZERO, why: "an earlier one was not taken".into() },
            false => take(world, message),
        };
        if !outcome.is_delivered() {
            failed.insert(line);
        }
        outcomes.push(outcome);
    }
    outcomes
}

fn take(world: &World, message: &ClaimedMessage) -> Outcome {
    let mut books = world.books();
    let name = books.name(message.id);
    let written = books.names.get(&message.id).and_then(|number| books.ledger.get(number));
    match written.map_or(Nature::Good, |(_, written)| written.nature) {
        Nature::Good => {}
        Nature::Doomed => return Outcome::retry("it never takes this one"),
        Nature::Rejected => {
            books.refused.insert(message.id);
            return Outcome::Reject("it does not like this one".into());
        }
        Nature::Unsendable => {
            books.refused.insert(message.id);
            return Outcome::Unsendable("it cannot read this one".into());
        }
    }
    let payload = message.payload.as_bytes();
    match world.sabotage {
        Some(Sabotage::Swallowed) => return Outcome::Accepted,
        Some(Sabotage::Garbled) => books.arrived(message, &[payload, b"!"].concat()),
        Some(Sabotage::Repeated) => {
            books.arrived(message, payload);
            books.arrived(message, payload);
        }
        Some(Sabotage::Overtaken) if books.arrivals.len().is_multiple_of(2) => {
            // As if the first of two had come after the second.
            let at = books.arrivals.len().saturating_sub(1);
            books.arrived(message, payload);
            let last = books.arrivals.len() - 1;
            books.arrivals.swap(at, last);
        }
        _ => books.arrived(message, payload),
    }
    world.story.tell(|| format!("{name} arrives"));
    Outcome::Accepted
}
