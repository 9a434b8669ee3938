//! Many producers at once, and messages as large and odd as they may be.

use futures::future::join_all;
use postrider::{EnqueueError, Enqueued};
use uuid::Uuid;

use super::harness::Harness;
use super::inputs::{accepted, refused};
use super::scene::{message, set};

const PRODUCERS: u64 = 8;

/// A small generator, so that a failure can be run again.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Runs transactions of one to three messages, three in ten of them aborted; answers what was committed.
async fn produce(h: &impl Harness, seed: u64) -> Vec<Uuid> {
    let (mut chance, mut committed) = (Chance(seed), Vec::new());
    for _ in 0..40 {
        let mut transaction = h.begin().await;
        let mut written = Vec::new();
        for _ in 0..=chance.below(3) {
            let answers = h.write(&mut transaction, vec![message(), message()]).await.expect("valid");
            written.extend(answers.iter().map(Enqueued::id));
        }
        match chance.below(10) {
            0 => h.roll_back(transaction).await,
            1 | 2 => drop(transaction),
            _ => {
                h.commit(transaction).await;
                committed.extend(written);
            }
        }
    }
    committed
}

pub async fn r01_what_many_producers_committed_is_there_and_nothing_else(h: impl Harness) {
    let committed = join_all((1..=PRODUCERS).map(|seed| produce(&h, seed))).await.concat();
    assert_eq!(set(h.rows().await.iter().map(|row| row.id)), set(committed));
}

/// Enqueues a key, goes on in the transaction, and commits.
async fn race(h: &impl Harness, key: usize) -> Enqueued {
    let mut transaction = h.begin().await;
    let answers = h.write(&mut transaction, vec![message().dedupe_key(format!("key {key}"))]).await;
    let answer = answers.expect("a race is no error")[0];
    h.write(&mut transaction, vec![message()]).await.expect("the transaction is still usable");
    h.commit(transaction).await;
    answer
}

pub async fn r03_of_many_producers_with_one_key_one_wins_and_no_transaction_fails(h: impl Harness) {
    const KEYS: usize = 25;
    for key in 0..KEYS {
        let answers = join_all((0..PRODUCERS).map(|_| race(&h, key))).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_new()).count(), 1, "one winner: {answers:?}");
        assert!(answers.iter().all(|answer| answer.id() == answers[0].id()), "all agree: {answers:?}");
    }
    assert_eq!(h.rows().await.len(), KEYS + KEYS * PRODUCERS as usize);
}

pub async fn r06_extremes_are_taken_and_arrive(h: impl Harness) {
    for (name, given) in accepted() {
        let sent = given.message().expect("it can be made");
        let answers = h.enqueue_many(vec![sent]).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        if given.deliver_at.is_none() {
            let claimed = h.claim_one(Uuid::new_v4()).await;
            assert_eq!((claimed.id, &claimed.namespace, &claimed.key), (answers[0].id(), &given.namespace, &given.key));
            assert_eq!((claimed.tenant_id, &claimed.dedupe_key), (given.tenant, &given.dedupe_key), "{name}");
        } else {
            h.set_status(answers[0].id(), postrider::State::Dead).await;
        }
    }
    assert_eq!(h.rows().await.len(), accepted().len());
}

pub async fn r06_whatever_is_refused_leaves_the_transaction_usable(h: impl Harness) {
    let mut transaction = h.begin().await;
    for (name, _, given) in refused() {
        let answer = h.write(&mut transaction, vec![message(), given.message().expect("it can be made")]).await;
        assert!(matches!(answer, Err(EnqueueError::Invalid { index: 1, .. })), "{name}: {answer:?}");
    }
    h.write(&mut transaction, vec![message()]).await.expect("the transaction is still usable");
    h.commit(transaction).await;
    assert_eq!(h.rows().await.len(), 1);
}
