//! The way to the database: statements take time, are refused, get lost, lose their answers, and are carried out long after
//! everybody has given them up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use postrider::store::{
    Bury, Capabilities, ClaimRequest, Claimed, Delivered, Nack, Purge, Release, Scope, Settled, Stats, Swept,
};
use postrider::{Armed, Doorbell, Lease, MemoryStore, Store, StoreError, StoreErrorKind};

use super::process::Process;
use super::rows::Verb;
use super::world::{World, pause};

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// It never gets there, and that is told.
    Unavailable,
    /// The transaction is rolled back.
    Conflict,
    /// It is refused for a reason that does not pass by itself.
    Refused,
    /// It never gets there, and nobody says so.
    Silence,
    /// It is done, and then the connection breaks.
    LostAnswer,
    /// It is done, and nobody says so.
    SilentAnswer,
    /// It is done much later.
    Late,
    /// It takes almost as long as anybody waits.
    Slow,
}

const FAULTS: [Fault; 12] = [
    Fault::Unavailable,
    Fault::Unavailable,
    Fault::Conflict,
    Fault::Refused,
    Fault::Silence,
    Fault::LostAnswer,
    Fault::LostAnswer,
    Fault::SilentAnswer,
    Fault::Late,
    Fault::Late,
    Fault::Slow,
    Fault::Slow,
];

/// One relay's way to the database.
#[derive(Clone)]
pub struct Way {
    pub world: Arc<World>,
    pub process: Arc<Process>,
}

impl Way {
    fn fault(&self) -> Option<Fault> {
        let world = &self.world;
        if world.database_is_down() {
            return Some(world.chance.pick(&[Fault::Unavailable, Fault::Silence]));
        }
        world.goes_wrong(world.plan.faults.store).then(|| world.chance.pick(&FAULTS))
    }

    /// Sends a statement and waits for its answer. `matters` if something may be repeated when it fails.
    async fn call<T, E>(&self, what: &'static str, matters: bool, effect: E) -> Result<T, StoreError>
    where
        T: Send + 'static,
        E: FnOnce(&World) -> T + Send + 'static,
    {
        self.process.pass(&self.world, what).await;
        let fault = self.fault();
        if let Some(fault) = fault {
            self.world.story.tell(|| format!("relay {}: {what} meets {fault:?}", self.process.number));
            let mut books = self.world.books();
            books.counts.store_faults += 1;
            if matters {
                books.disturb(self.process.worker, self.world.aftermath());
            }
        }
        let answer = match fault {
            None => Ok(self.carry(effect).await),
            Some(Fault::Unavailable) => Err(StoreErrorKind::Unavailable),
            Some(Fault::Conflict) => Err(StoreErrorKind::Conflict),
            Some(Fault::Refused) => Err(StoreErrorKind::Refused),
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::LostAnswer) => {
                self.carry(effect).await;
                Err(StoreErrorKind::Unavailable)
            }
            Some(Fault::SilentAnswer) => {
                self.carry(effect).await;
                std::future::pending().await
            }
            Some(Fault::Slow) => {
                let (answer, slow) = (self.carry(effect).await, self.world.plan.store_timeout / 10 * 9);
                pause(slow / 2 + self.world.chance.part_of(slow / 2)).await;
                Ok(answer)
            }
            Some(Fault::Late) => {
                self.carry_late(what, effect);
                std::future::pending().await
            }
        };
        self.process.pass(&self.world, what).await;
        answer.map_err(|kind| StoreError::new(kind, format!("{what} failed: it was to")))
    }

    /// There and back again. Whoever dies meanwhile has sent nothing.
    async fn carry<T>(&self, effect: impl FnOnce(&World) -> T) -> T {
        self.world.latency().await;
        if self.process.is_dead() {
            std::future::pending::<()>().await;
        }
        let answer = effect(&self.world);
        self.world.latency().await;
        answer
    }

    /// The statement is on its way, whatever becomes of its sender.
    fn carry_late<T: Send + 'static>(&self, what: &'static str, effect: impl FnOnce(&World) -> T + Send + 'static) {
        let (world, number, worker) = (self.world.clone(), self.process.number, self.process.worker);
        tokio::spawn(async move {
            pause(world.chance.part_of(world.plan.lease * 2)).await;
            world.story.tell(|| format!("relay {number}: a late {what} gets there"));
            world.books().unheard(worker);
            effect(&world);
        });
    }

    fn settled(&self, what: &str, leases: &[Lease], answers: &[Settled]) {
        let mut books = self.world.books();
        books.counts.stale += answers.iter().filter(|answer| **answer == Settled::LeaseLost).count() as u64;
        let tell = |(lease, answer): (&Lease, &Settled)| format!(" {} {answer:?}", books.name(lease.id));
        self.world.story.tell(|| {
            let each: String = leases.iter().zip(answers).map(tell).collect();
            format!("relay {}: {what}{each}", self.process.number)
        });
    }

    /// Sends a verb that ends leases.
    async fn settle<T>(
        &self,
        what: &'static str,
        entries: &[T],
        lease: impl Fn(&T) -> Lease,
        verb: impl FnOnce(Vec<Lease>) -> Verb,
        run: impl FnOnce(&MemoryStore, &[T]) -> Vec<Settled> + Send + 'static,
    ) -> Result<Vec<Settled>, StoreError>
    where
        T: Clone + Send + Sync + 'static,
    {
        let leases: Vec<Lease> = entries.iter().map(lease).collect();
        let (verb, entries, way) = (verb(leases.clone()), entries.to_vec(), self.clone());
        let effect = move |world: &World| {
            let answers = world.effect(&verb, |store| run(store, &entries));
            way.settled(what, &leases, &answers);
            answers
        };
        self.call(what, true, effect).await
    }
}

/// The store in memory answers at once, and never with an error.
fn now<T>(call: impl Future<Output = Result<T, StoreError>>) -> T {
    call.now_or_never().expect("memory answers at once").expect("memory does not fail")
}

#[async_trait]
impl Store for Way {
    fn capabilities(&self) -> Capabilities {
        self.world.store.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        let (request, number) = (request.clone(), self.process.number);
        let effect = move |world: &World| {
            let claimed = world.effect(&Verb::Claim { worker: request.worker }, |store| now(store.claim(&request)));
            if !claimed.messages.is_empty() {
                let books = world.books();
                world.story.tell(|| {
                    let names = claimed.messages.iter().map(|message| books.name(message.id));
                    let each: String =
                        names.zip(&claimed.messages).map(|(name, it)| format!(" {name}#{}", it.attempts)).collect();
                    format!("relay {number}: claim {:?}{each}", request.order)
                });
            }
            claimed
        };
        self.call("claim", true, effect).await
    }

    async fn extend(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Option<Lease>>, StoreError> {
        let (leases, number) = (leases.to_vec(), self.process.number);
        let effect = move |world: &World| {
            let verb = Verb::Extend(leases.clone());
            let renewed = world.effect(&verb, |store| now(store.extend(&leases, lease)));
            let books = world.books();
            world.story.tell(|| {
                let each: String = leases.iter().map(|lease| format!(" {}", books.name(lease.id))).collect();
                format!("relay {number}: extend{each}")
            });
            renewed
        };
        self.call("extend", true, effect).await
    }

    async fn ack(&self, leases: &[Lease], then: Delivered) -> Result<Vec<Settled>, StoreError> {
        let verb = |leases| Verb::Ack { leases, deletes: then == Delivered::Delete };
        self.settle("ack", leases, |lease| *lease, verb, move |store, leases| now(store.ack(leases, then))).await
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<Vec<Settled>, StoreError> {
        self.settle("nack", nacks, |nack| nack.lease, Verb::Nack, |store, nacks| now(store.nack(nacks))).await
    }

    async fn bury(&self, buries: &[Bury]) -> Result<Vec<Settled>, StoreError> {
        self.settle("bury", buries, |bury| bury.lease, Verb::Bury, |store, buries| now(store.bury(buries))).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Settled>, StoreError> {
        let run = |store: &MemoryStore, releases: &[Release]| now(store.release(releases));
        self.settle("release", releases, |release| release.lease, Verb::Release, run).await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: i32, limit: u32) -> Result<Swept, StoreError> {
        let (scope, number) = (scope.clone(), self.process.number);
        let effect = move |world: &World| {
            let swept = world.effect(&Verb::Sweep, |store| now(store.sweep(&scope, max_attempts, limit)));
            for id in &swept.buried {
                world.story.tell(|| format!("relay {number}: sweep buries {}", world.books().name(*id)));
            }
            swept
        };
        self.call("sweep", false, effect).await
    }

    async fn purge(&self, purge: &Purge) -> Result<u64, StoreError> {
        let purge = purge.clone();
        self.call("purge", false, move |world| world.effect(&Verb::Purge, |store| now(store.purge(&purge)))).await
    }

    async fn stats(&self, scope: &Scope) -> Result<Stats, StoreError> {
        let scope = scope.clone();
        self.call("stats", false, move |world| now(world.store.stats(&scope))).await
    }

    async fn next_due(&self, scope: &Scope) -> Result<Option<Duration>, StoreError> {
        let scope = scope.clone();
        self.call("next_due", false, move |world| now(world.store.next_due(&scope))).await
    }

    async fn next_coming(&self, scope: &Scope, since: Duration) -> Result<Option<Duration>, StoreError> {
        let scope = scope.clone();
        self.call("next_coming", false, move |world| now(world.store.next_coming(&scope, since))).await
    }

    async fn doorbell(&self, scope: &Scope) -> Result<Box<dyn Doorbell>, StoreError> {
        let scope = scope.clone();
        let bell = self.call("doorbell", false, move |world| now(world.store.doorbell(&scope))).await?;
        Ok(Box::new(Bell { bell, way: self.clone() }))
    }

    async fn ring(&self, scope: &Scope) -> Result<(), StoreError> {
        let scope = scope.clone();
        self.call("ring", false, move |world| now(world.store.ring(&scope))).await
    }
}

/// A bell at the end of the way.
struct Bell {
    bell: Box<dyn Doorbell>,
    way: Way,
}

#[async_trait]
impl Doorbell for Bell {
    async fn arm(&mut self) -> Result<Armed, StoreError> {
        self.way.call("arm", false, |_| ()).await?;
        self.bell.arm().await
    }

    async fn disarm(&mut self) -> Result<(), StoreError> {
        self.way.call("disarm", false, |_| ()).await?;
        self.bell.disarm().await
    }

    async fn wait(&mut self) -> Result<(), StoreError> {
        self.bell.wait().await?;
        self.way.process.pass(&self.way.world, "a ring").await;
        Ok(())
    }
}
