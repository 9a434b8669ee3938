//! Producers: an application that changes its own table and writes messages, in the same transactions.
//!
//! Three transactions of ten are aborted on purpose. A transaction whose end is not known is left as it is: the database
//! knows, and the ledger is in the database. Its keys are not used again, because what comes late would break their order,
//! and that would be the producer's fault.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::message::{Made, doomed, made};
use super::place::Place;
use crate::checker::evidence::{Entry, Fields, read};
use crate::source::{End, Source};

const PRODUCERS: u64 = 4;
const KEYS: u64 = 16;
const LARGEST_TRANSACTION: usize = 20;
/// One of so many messages is too large for the broker.
const DOOMED: u64 = 300;
/// One of so many has no key.
const KEYLESS: u64 = 10;
/// A transaction that takes longer has an end that is not known.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// What producers were told.
#[derive(Debug, Default, Clone)]
pub struct Told {
    /// Messages whose commit was confirmed.
    pub committed: Vec<Uuid>,
    /// Transactions that nobody asked to commit, by their messages.
    pub aborted: Vec<Vec<Uuid>>,
    /// Transactions that failed, or whose end is not known, by their messages.
    pub unknown: Vec<Vec<Uuid>>,
}

impl Told {
    /// How many of the transactions with an unknown end were committed after all.
    pub fn carried_out(&self, there: &HashSet<Uuid>) -> usize {
        self.unknown.iter().filter(|ids| ids.iter().all(|id| there.contains(id))).count()
    }

    /// Where the outbox has what was taken back, or a part of a transaction (I1).
    pub fn judge(&self, there: &HashSet<Uuid>) -> Vec<String> {
        let count = |ids: &[Uuid]| ids.iter().filter(|id| there.contains(id)).count();
        let returned = self.aborted.iter().filter(|ids| count(ids) > 0).count();
        let parts = self.unknown.iter().filter(|ids| (1..ids.len()).contains(&count(ids))).count();
        let tell = |number: usize, what: &str| (number > 0).then(|| format!("I1: {number} {what}"));
        let returned = tell(returned, "transactions were aborted, and their messages are in the outbox");
        let parts = tell(parts, "transactions whose end was not known are in the outbox in part");
        returned.into_iter().chain(parts).collect()
    }
}

/// How it goes so far.
#[derive(Debug, Default)]
struct Counts {
    committed: AtomicUsize,
    failed: AtomicUsize,
}

impl Counts {
    fn committed(&self) -> usize {
        self.committed.load(Ordering::SeqCst)
    }
}

/// Producers at work.
pub struct Producers {
    /// How many messages may have been committed by now; the producers are done when nobody can raise it any more.
    allowed: watch::Sender<usize>,
    counts: Arc<Counts>,
    tasks: JoinSet<Result<Told>>,
}

impl Producers {
    /// Starts them; they wait to be allowed something.
    pub async fn start(place: &Place, seed: u64) -> Result<Self> {
        let (allowed, counts) = (watch::Sender::new(0), Arc::new(Counts::default()));
        let mut tasks = JoinSet::new();
        for number in 0..PRODUCERS {
            let source = Source::connect(&place.producers_url(), "producer", 1).await?;
            let producer = Producer {
                source,
                number,
                generation: 0,
                place: 0,
                chance: fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number)),
                told: Told::default(),
            };
            tasks.spawn(producer.run(allowed.subscribe(), counts.clone()));
        }
        Ok(Self { allowed, counts, tasks })
    }

    /// Allows so many messages in all.
    pub fn allow(&self, messages: usize) {
        self.allowed.send_if_modified(|allowed| {
            let is_more = messages > *allowed;
            *allowed = messages.max(*allowed);
            is_more
        });
    }

    /// Allows so many more if there is nothing to do any more.
    pub fn feed(&self, messages: usize) {
        self.allow(self.committed() + messages);
    }

    /// How many messages were committed for sure.
    pub fn committed(&self) -> usize {
        self.counts.committed()
    }

    /// How many transactions failed, or have an end that is not known.
    pub fn failed(&self) -> usize {
        self.counts.failed.load(Ordering::SeqCst)
    }

    /// Waits until they have committed what they may; answers what they were told.
    pub async fn finish(self) -> Result<Told> {
        let Self { allowed, mut tasks, .. } = self;
        drop(allowed);
        let mut all = Told::default();
        while let Some(told) = tasks.join_next().await {
            let told = told??;
            all.committed.extend(told.committed);
            all.aborted.extend(told.aborted);
            all.unknown.extend(told.unknown);
        }
        Ok(all)
    }
}

struct Producer {
    source: Source,
    number: u64,
    /// Grows when an end is not known: keys of another generation are other keys.
    generation: u64,
    place: i64,
    chance: fastrand::Rng,
    told: Told,
}

impl Producer {
    async fn run(mut self, mut allowed: watch::Receiver<usize>, counts: Arc<Counts>) -> Result<Told> {
        loop {
            while counts.committed() < *allowed.borrow() {
                self.transact(&counts).await;
            }
            let more = allowed.wait_for(|allowed| counts.committed() < *allowed).await;
            if more.is_err() {
                return Ok(self.told);
            }
        }
    }

    async fn transact(&mut self, counts: &Counts) {
        let made: Vec<Made> = (0..self.chance.usize(1..=LARGEST_TRANSACTION)).map(|_| self.next()).collect();
        let end = match self.chance.u8(0..20) {
            0..14 => End::Commit,
            14..17 => End::Rollback,
            _ => End::Drop,
        };
        let lines: Vec<String> = made.iter().map(|made| line(&made.entry)).collect();
        let change = format!("insert into ledger (id, contents, place, doomed, lane) values {}", lines.join(", "));
        let ids: Vec<Uuid> = made.iter().map(|made| made.entry.id).collect();
        let messages = made.into_iter().map(|made| made.message).collect();
        let done = tokio::time::timeout(PATIENCE, self.source.transact(&change, messages, end)).await;
        match (done, end) {
            (Ok(Ok(())), End::Commit) => {
                counts.committed.fetch_add(ids.len(), Ordering::SeqCst);
                self.told.committed.extend(ids);
            }
            (Ok(Ok(())), End::Rollback | End::Drop) => self.told.aborted.push(ids),
            (Ok(Err(_)) | Err(_), end) => {
                let ended = if end == End::Commit { &mut self.told.unknown } else { &mut self.told.aborted };
                ended.push(ids);
                counts.failed.fetch_add(1, Ordering::SeqCst);
                self.generation += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn next(&mut self) -> Made {
        self.place += 1;
        if self.chance.u64(0..DOOMED) == 0 {
            return doomed(self.place);
        }
        if self.chance.u64(0..KEYLESS) == 0 {
            return made(None, self.place);
        }
        let lane = self.chance.u64(0..KEYS);
        let key = format!("{}-{}-{lane}", self.number, self.generation);
        made(Some((lane, &key)), self.place)
    }
}

fn line(entry: &Entry) -> String {
    let contents = entry.contents.unwrap_or_default().cast_signed();
    let lane = entry.lane.as_deref().unwrap_or_default();
    format!("('{}', {contents}, {}, {}, '{lane}')", entry.id, entry.place, u8::from(entry.is_doomed))
}

/// Reads what the application knows it committed.
pub async fn ledger(source: &Source) -> Result<Vec<Entry>> {
    let sql = "select concat_ws('|', id, contents, place, doomed, lane) from ledger";
    read(source, sql, entry).await.context("cannot read the ledger")
}

fn entry(fields: &mut Fields<'_>) -> Result<Entry> {
    Ok(Entry {
        id: fields.parse()?,
        contents: Some(fields.parse::<i64>()?.cast_unsigned()),
        place: fields.parse()?,
        is_doomed: fields.text()? == "1",
        lane: Some(fields.text()?.to_owned()).filter(|lane| !lane.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_nothing_aborted_is_there_and_of_an_unknown_transaction_all_or_nothing() {
        let ids: Vec<Uuid> = (0..6).map(Uuid::from_u128).collect();
        let (aborted, unknown) = (vec![ids[0..2].to_vec()], vec![ids[2..4].to_vec(), ids[4..6].to_vec()]);
        let told = Told { committed: Vec::new(), aborted, unknown };
        let there = |ids: &[Uuid]| ids.iter().copied().collect::<HashSet<Uuid>>();
        assert!(told.judge(&there(&ids[2..4])).is_empty());
        assert_eq!(told.carried_out(&there(&ids[2..4])), 1);
        assert_eq!(
            told.judge(&there(&ids[3..6])),
            ["I1: 1 transactions whose end was not known are in the outbox in part"]
        );
        assert_eq!(
            told.judge(&there(&ids[0..1])),
            ["I1: 1 transactions were aborted, and their messages are in the outbox"]
        );
    }
}
