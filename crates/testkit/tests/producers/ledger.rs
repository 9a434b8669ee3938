//! r01: what the application committed and what is in the outbox agree, however transactions end.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use anyhow::{Result, anyhow};
use futures::FutureExt;
use futures::future::{join_all, poll_fn};
use postrider::Message;
use uuid::Uuid;

use super::diesel::Diesel;
use super::fixture::Fixture;
use super::producer::{End, Producer, Step};
use super::sea_orm::SeaOrm;
use super::sqlx::Sqlx;
use super::tokio_postgres::TokioPostgres;

const PRODUCERS_PER_DRIVER: u64 = 2;
const TRANSACTIONS: u64 = 250;

/// How a transaction that must not commit ends.
#[derive(Clone, Copy)]
enum Abort {
    Rollback,
    Error,
    Panic,
    /// The future is dropped after it was polled this often; it may have committed just before.
    Drop(u64),
}

/// A small generator, so that a failure can be run again.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Three transactions in ten are aborted.
    fn abort(&mut self) -> Option<Abort> {
        (self.below(10) < 3).then(|| match self.below(4) {
            0 => Abort::Rollback,
            1 => Abort::Error,
            2 => Abort::Panic,
            _ => Abort::Drop(self.below(12)),
        })
    }
}

/// A change of the ledger and its message, in either order, with the abort somewhere in between.
fn steps(chance: &mut Chance, abort: Option<Abort>) -> Vec<Step> {
    let id = Uuid::new_v4();
    let mut steps = vec![
        Step::sql(format!("insert into ledger (id) values ('{id}')")),
        Step::One(Message::json("shop", "ledger", &id).key(id.to_string())),
    ];
    if chance.below(2) == 0 {
        steps.reverse();
    }
    let failure = match abort {
        Some(Abort::Error) => Step::meanwhile(async { Err(anyhow!("the application changed its mind")) }),
        Some(Abort::Panic) => Step::meanwhile(async { resume_unwind(Box::new("the application fell over")) }),
        _ => return steps,
    };
    steps.insert(usize::try_from(chance.below(3)).unwrap_or(0), failure);
    steps
}

/// Polls a future at most so often, then drops it.
async fn polled<T>(times: u64, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Runs transactions one after the other and answers how many were told that they committed.
async fn produce<P: Producer>(fixture: &Fixture, seed: u64) -> Result<i64> {
    let mut chance = Chance(seed);
    let mut producer = P::connect(&fixture.database.url()).await?;
    let mut committed = 0;
    for _ in 0..TRANSACTIONS {
        let abort = chance.abort();
        let steps = steps(&mut chance, abort);
        let end = if matches!(abort, Some(Abort::Rollback)) { End::Rollback } else { End::Commit };
        let times = if let Some(Abort::Drop(times)) = abort { times } else { u64::MAX };
        let transaction = AssertUnwindSafe(producer.transact(&fixture.outbox, steps, end));
        let outcome = polled(times, transaction.catch_unwind()).await;
        match (outcome, abort) {
            (Some(Ok(Ok(_))), None | Some(Abort::Drop(_))) => committed += 1,
            (Some(Ok(Ok(_))), Some(Abort::Rollback)) | (Some(Ok(Err(_))), Some(Abort::Error)) => {}
            (Some(Err(_)), Some(Abort::Panic)) | (None, Some(Abort::Drop(_))) => {
                producer = P::connect(&fixture.database.url()).await?;
            }
            (Some(Ok(Err(error))), _) => return Err(error),
            _ => return Err(anyhow!("a transaction did not end as it should")),
        }
    }
    Ok(committed)
}

#[tokio::test]
async fn r01_the_ledger_and_the_outbox_agree_one_to_one() -> Result<()> {
    let fixture = Fixture::new().await?;
    sqlx::raw_sql("create table ledger (id uuid primary key)").execute(&fixture.pool).await?;
    let fixture = &fixture;
    let producers = (1..=PRODUCERS_PER_DRIVER).flat_map(|seed| {
        [
            produce::<Sqlx>(fixture, seed).boxed_local(),
            produce::<TokioPostgres>(fixture, seed + 100).boxed_local(),
            produce::<SeaOrm>(fixture, seed + 200).boxed_local(),
            produce::<Diesel>(fixture, seed + 300).boxed_local(),
        ]
    });
    let told: i64 = join_all(producers).await.into_iter().sum::<Result<i64>>()?;
    let disagree = "select count(*) from ledger full join outbox_messages as row on row.key = ledger.id::text where ledger.id is null or row.id is null";
    assert_eq!(fixture.count(disagree).await?, 0);
    let there = fixture.count("select count(*) from ledger").await?;
    let dropped_too_late = there - told;
    assert!((0..=150).contains(&dropped_too_late), "{there} are there, {told} were told so");
    assert!((1_200..1_700).contains(&there), "{there} of 2000 committed");
    Ok(())
}
