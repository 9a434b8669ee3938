//! Producers: an application that changes its own table and writes messages, in the same transactions.
//!
//! Three transactions of ten are aborted on purpose. A transaction whose end is not known is left as it is: the database
//! knows, and the ledger is in the database. Its keys are not used again, because what comes late would break their order,
//! and that would be the producer's fault.

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
    /// Transactions that were aborted on purpose.
    pub aborted: usize,
    /// Transactions that failed, or whose end is not known.
    pub unknown: usize,
}

/// Producers at work.
pub struct Producers {
    /// How many messages may have been committed by now; the producers are done when nobody can raise it any more.
    allowed: watch::Sender<usize>,
    committed: Arc<AtomicUsize>,
    tasks: JoinSet<Result<Told>>,
}

impl Producers {
    /// Starts them; they wait to be allowed something.
    pub async fn start(place: &Place, seed: u64) -> Result<Self> {
        let (allowed, committed) = (watch::Sender::new(0), Arc::new(AtomicUsize::new(0)));
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
            tasks.spawn(producer.run(allowed.subscribe(), committed.clone()));
        }
        Ok(Self { allowed, committed, tasks })
    }

    /// Allows so many messages in all.
    pub fn allow(&self, messages: usize) {
        self.allowed.send_modify(|allowed| *allowed = messages.max(*allowed));
    }

    /// How many messages were committed for sure.
    pub fn committed(&self) -> usize {
        self.committed.load(Ordering::SeqCst)
    }

    /// Waits until they have committed what they may; answers what they were told.
    pub async fn finish(self) -> Result<Told> {
        let Self { allowed, mut tasks, .. } = self;
        drop(allowed);
        let mut all = Told::default();
        while let Some(told) = tasks.join_next().await {
            let told = told??;
            all.committed.extend(told.committed);
            all.aborted += told.aborted;
            all.unknown += told.unknown;
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
    async fn run(mut self, mut allowed: watch::Receiver<usize>, committed: Arc<AtomicUsize>) -> Result<Told> {
        loop {
            while committed.load(Ordering::SeqCst) < *allowed.borrow() {
                self.transact(&committed).await;
            }
            let more = allowed.wait_for(|allowed| committed.load(Ordering::SeqCst) < *allowed).await;
            if more.is_err() {
                return Ok(self.told);
            }
        }
    }

    async fn transact(&mut self, committed: &AtomicUsize) {
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
                committed.fetch_add(ids.len(), Ordering::SeqCst);
                self.told.committed.extend(ids);
            }
            (Ok(Ok(())), End::Rollback | End::Drop) => self.told.aborted += 1,
            (Ok(Err(_)) | Err(_), _) => {
                self.told.unknown += 1;
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
