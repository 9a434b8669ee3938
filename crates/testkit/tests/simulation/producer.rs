//! A producer: a domain table beside the outbox, and transactions that write both. Three in ten come to nothing. A commit
//! whose answer is lost is made again with the same dedupe key.

use std::sync::Arc;

use postrider::{Enqueued, MemoryTransaction, Message};
use uuid::Uuid;

use super::books::{Nature, Written};
use super::plan::MOST_DOOMED;
use super::rows::Verb;
use super::sabotage::Sabotage;
use super::world::{World, pause};

/// What is common to the messages of one producer: their keys are its own, and it writes one transaction after the other,
/// as it must where order matters.
pub struct Producer {
    pub world: Arc<World>,
    pub number: usize,
}

/// Messages that are written and not committed.
type Draft = Vec<(Uuid, Written)>;

impl Producer {
    pub async fn run(self) {
        let plan = &self.world.plan;
        for _ in 0..plan.transactions {
            pause(self.world.chance.part_of(plan.active / u32::try_from(plan.transactions).unwrap_or(1))).await;
            let dedupe = self.world.chance.happens(200).then(|| self.dedupe_key());
            let is_told = self.transaction(dedupe.clone()).await;
            if !is_told && dedupe.is_some() {
                self.transaction(dedupe).await;
            }
        }
    }

    /// A key of its own, or one that others use too.
    fn dedupe_key(&self) -> String {
        let whose = self.world.chance.pick(&[self.number, 9]);
        format!("{whose}/{}", self.world.chance.number(1..=5))
    }

    /// Writes in a transaction; says whether it was told that it is committed.
    async fn transaction(&self, dedupe: Option<String>) -> bool {
        let (world, chance) = (&self.world, &self.world.chance);
        let mut transaction = world.store.begin();
        let mut draft = Draft::new();
        for at in 0..chance.number(1..=3) {
            let dedupe = dedupe.clone().filter(|_| at == 0);
            self.write(&mut transaction, &mut draft, dedupe).await;
            pause(chance.millis(0..=20)).await;
        }
        if chance.happens(300) {
            drop(transaction);
            world.story.tell(|| format!("producer {} rolls {} messages back", self.number, draft.len()));
            if world.sabotage == Some(Sabotage::FalseCommit) {
                self.log(draft);
            }
            return true;
        }
        // The domain table and the outbox are committed together.
        let books = world.books();
        world.story.tell(|| {
            let each: String = draft.iter().map(|(id, _)| format!(" {}", books.name(*id))).collect();
            format!("producer {} commits{each}", self.number)
        });
        drop(books);
        world.effect(&Verb::Commit, |_| transaction.commit());
        self.log(draft);
        !world.goes_wrong(200)
    }

    fn log(&self, draft: Draft) {
        let mut books = self.world.books();
        for (id, written) in draft {
            books.ledger.insert(written.number, (id, written));
        }
    }

    async fn write(&self, transaction: &mut MemoryTransaction, draft: &mut Draft, dedupe: Option<String>) {
        let (world, chance) = (&self.world, &self.world.chance);
        let tenant = Some(chance.number(0..=world.plan.tenants)).filter(|tenant| *tenant > 0);
        let tenant = tenant.filter(|_| dedupe.is_none()).map(|tenant| Uuid::from_u128(u128::from(tenant)));
        let key = chance.happens(700).then(|| format!("{}-{}", self.number, chance.number(1..=2)));
        let (namespace, topic) = (chance.pick(&["shop", "shop", "bank"]), chance.pick(&["placed", "paid"]));
        let number = world.books().names.len();
        let (message, payload) = match chance.happens(500) {
            true => {
                let text = serde_json::json!({ "number": number });
                (Message::json(namespace, topic, &text), text.to_string().into_bytes())
            }
            false => {
                let bytes = vec![u8::try_from(number % 256).unwrap_or(0); chance.size(0..=40)];
                (Message::bytes(namespace, topic, "application/x-canary", bytes.clone()), bytes)
            }
        };
        let id = message.id();
        world.books().names.insert(id, number);
        let message = self.dress(message, key.clone(), tenant, dedupe);
        let enqueued = world.store.outbox().enqueue(&mut *transaction, message).await.expect("a good message");
        match enqueued {
            Enqueued::New(_) => {
                let (namespace, topic) = (namespace.to_owned(), topic.to_owned());
                let nature = self.nature();
                draft.push((id, Written { number, nature, namespace, topic, key, tenant, payload }));
            }
            Enqueued::Already(there) => {
                let books = world.books();
                let name = books.name(there);
                world.story.tell(|| format!("producer {} finds {name} there already", self.number));
            }
        }
    }

    fn dress(&self, message: Message, key: Option<String>, tenant: Option<Uuid>, dedupe: Option<String>) -> Message {
        let chance = &self.world.chance;
        let message = key.into_iter().fold(message, Message::key);
        let message = tenant.into_iter().fold(message, Message::tenant);
        let message = dedupe.into_iter().fold(message, Message::dedupe_key);
        let message = match chance.happens(100) {
            true => message.deliver_after(chance.millis(1..=2_000)),
            false => message,
        };
        match chance.happens(100) {
            true => message.max_attempts(u32::try_from(chance.number(1..=4)).unwrap_or(1)),
            false => message,
        }
    }

    fn nature(&self) -> Nature {
        let nature = self.world.chance.pick(&[Nature::Rejected, Nature::Unsendable, Nature::Doomed]);
        let is_good = !self.world.chance.happens(80);
        let mut books = self.world.books();
        match is_good {
            true => Nature::Good,
            false if nature == Nature::Doomed && books.doomed >= MOST_DOOMED => Nature::Good,
            false => {
                books.doomed += u64::from(nature == Nature::Doomed);
                nature
            }
        }
    }
}
