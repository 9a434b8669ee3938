//! What happens to relays from outside, by chance: they are killed, stand still, are restarted; the database's clock jumps;
//! the database or the destination is down for a while.

use std::sync::Arc;

use tokio::time::Instant;

use super::relay::Relay;
use super::world::{World, pause};

/// The relays of a run, and whatever happens to them.
pub struct Weather {
    world: Arc<World>,
    relays: Vec<Relay>,
    started: usize,
}

impl Weather {
    pub fn new(world: Arc<World>) -> Self {
        let mut weather = Self { world, relays: Vec::new(), started: 0 };
        (0..weather.world.plan.relays).for_each(|_| weather.start());
        weather
    }

    fn start(&mut self) {
        self.started += 1;
        self.relays.push(Relay::start(&self.world, self.started));
    }

    /// Lets it happen for as long as the plan says.
    pub async fn run(&mut self) {
        let until = Instant::now() + self.world.plan.active;
        while Instant::now() < until {
            pause(self.world.chance.part_of(self.world.plan.faults.every * 2)).await;
            self.bury_the_dead().await;
            while self.relays.len() < self.world.plan.relays {
                self.start();
            }
            self.happen().await;
        }
    }

    /// The weather gets fine: nothing more goes wrong. Some relays may have survived, and there is a fresh one.
    pub async fn clear_up(&mut self, with_fresh_relay: bool) {
        self.world.story.tell(|| "the weather clears up".into());
        self.world.heal();
        self.relays.iter().for_each(|relay| relay.process.light_fuse(0));
        if !with_fresh_relay || self.world.chance.happens(500) {
            self.relays.iter().for_each(|relay| relay.process.die(&self.world, "the end of the storm"));
        }
        self.relays.iter().for_each(|relay| relay.process.thaw(&self.world));
        self.bury_the_dead().await;
        if with_fresh_relay {
            self.start();
        }
    }

    pub async fn stop_all(&mut self) {
        self.relays.iter().for_each(|relay| relay.stop.cancel());
        for relay in self.relays.drain(..) {
            relay.end(&self.world).await;
        }
    }

    async fn bury_the_dead(&mut self) {
        let (dead, alive) = self.relays.drain(..).partition(|relay| relay.process.is_dead());
        self.relays = alive;
        for relay in Vec::from_iter::<Vec<Relay>>(dead) {
            relay.end(&self.world).await;
        }
    }

    async fn happen(&mut self) {
        let world = self.world.clone();
        let (chance, faults, lease) = (&world.chance, &world.plan.faults, world.plan.lease);
        if chance.happens(faults.jump) {
            self.jump();
        }
        if chance.happens(faults.database_down) {
            let lasts = chance.part_of(lease * 2);
            world.story.tell(|| format!("the database is down for {lasts:?}"));
            world.take_down_database(lasts);
        }
        if chance.happens(faults.sink_down) {
            let lasts = chance.part_of(lease * 2);
            world.story.tell(|| format!("the sink is down for {lasts:?}"));
            world.take_down_sink(lasts);
        }
        let at = chance.size(0..=self.relays.len() as u64 - 1);
        let process = self.relays[at].process.clone();
        if chance.happens(faults.crash) {
            process.die(&world, "some moment");
        } else if chance.happens(faults.fuse) {
            process.light_fuse(chance.number(1..=40));
        } else if chance.happens(faults.freeze) && !process.is_frozen() {
            process.freeze(&world);
            let lasts = chance.part_of(lease * 2);
            tokio::spawn(async move {
                pause(lasts).await;
                process.thaw(&world);
            });
        } else if chance.happens(faults.restart) && !process.is_frozen() {
            self.restart(at);
        }
    }

    /// One relay is told to stop, and another takes its place at once.
    fn restart(&mut self, at: usize) {
        let (relay, world) = (self.relays.swap_remove(at), self.world.clone());
        world.story.tell(|| format!("relay {} is told to stop", relay.process.number));
        world.books().counts.restarts += 1;
        tokio::spawn(async move { relay.end(&world).await });
        self.start();
    }

    /// The database's clock goes ahead or back. What relays measure does not change by that.
    fn jump(&self) {
        let world = &self.world;
        let micros = i64::try_from(world.chance.part_of(world.plan.lease * 2).as_micros()).unwrap_or(0);
        let is_ahead = world.chance.happens(500);
        world
            .story
            .tell(|| format!("the database's clock goes {} {micros} µs", if is_ahead { "ahead" } else { "back" }));
        world.clock.jump(if is_ahead { micros } else { -micros });
        let mut books = world.books();
        books.counts.jumps += 1;
        if is_ahead {
            books.jumped();
        }
    }
}
