//! A relay: the real dispatcher, with its ways to the database and to the destination.

use std::sync::Arc;

use postrider::{Dispatcher, TenantLimit, TenantLimits};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::process::Process;
use super::sink::Destination;
use super::store::Way;
use super::world::World;

pub struct Relay {
    pub process: Arc<Process>,
    pub stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Relay {
    pub fn start(world: &Arc<World>, number: usize) -> Self {
        world.story.tell(|| format!("relay {number} starts"));
        let process = Arc::new(Process::new(number));
        let (stop, dispatcher) = (CancellationToken::new(), dispatcher(world, &process));
        let (here, killed, stopped) = (world.clone(), process.killed.clone(), stop.clone());
        let worker = process.worker;
        // A crash drops the dispatcher with all its tasks, between two of their awaits.
        let task = tokio::spawn(async move {
            let ended = tokio::select! {
                biased;
                () = killed.cancelled() => return,
                ended = dispatcher.run(stopped) => ended,
            };
            here.story.tell(|| format!("relay {number} ends, {ended:?}"));
            here.books().ended(worker, ended, here.is_patient());
        });
        Self { process, stop, task }
    }

    /// Waits for its end, which must come by itself once it was told to stop.
    pub async fn end(self, world: &World) {
        self.stop.cancel();
        let (number, longest) = (self.process.number, world.plan.grace + world.plan.store_timeout * 8);
        match timeout(longest, self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => world.books().breach(format!("relay {number} panicked: {error}")),
            Err(_) => world.books().breach(format!("R28: relay {number} did not end within {longest:?}")),
        }
    }
}

fn dispatcher(world: &Arc<World>, process: &Arc<Process>) -> Dispatcher {
    let plan = &world.plan;
    let way = Way { world: world.clone(), process: process.clone() };
    let destination = Destination { world: world.clone(), process: process.clone() };
    let chance = world.chance.clone();
    let mut builder = Dispatcher::builder(way, destination)
        .worker_id(process.worker)
        .randomness(Arc::new(move || chance.fraction()))
        .order(plan.order)
        .delivered(plan.delivered)
        .batch_size(plan.batch)
        .concurrency(plan.concurrency)
        .lease(plan.lease)
        .poll_interval(plan.poll)
        .sweep_interval(plan.sweep)
        .publish_timeout(plan.publish_timeout)
        .store_timeout(plan.store_timeout)
        .shutdown_grace(plan.grace)
        .max_attempts(plan.max_attempts)
        .backoff(plan.backoff.0, plan.backoff.1)
        .breaker(plan.breaker);
    if let Some(age) = plan.purge_after {
        builder = builder.purge_delivered_after(age);
    }
    if let Some((rate, in_flight)) = plan.tenant_limit {
        builder = builder.tenant_limits(TenantLimits::each(TenantLimit::none().rate(rate).in_flight(in_flight)));
    }
    builder.build().expect("the settings agree")
}
