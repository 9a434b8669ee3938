//! Draining a backlog through the real dispatcher with a sink that does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use postrider::store::Delivered;
use postrider::{Dispatcher, PublishError, Store, callback};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::subject::Subject;
use crate::{median, payload};

const ROUNDS: usize = 3;

pub async fn run<S: Subject>(subject: &S) -> Result<()> {
    let messages: usize = std::env::var("MESSAGES").ok().map_or(Ok(200_000), |text| text.parse())?;
    println!("drain on {}: {messages} messages of 200 bytes, {ROUNDS} rounds", S::NAME);
    for (name, delete) in [("ack by update (rows kept)", false), ("ack by delete", true)] {
        let (mut ratios, mut on_ours, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let bare = bare_rate(subject, messages, delete).await?;
            let same = same_table_rate(subject, messages, delete).await?;
            let ours = our_rate(subject, messages, delete).await?;
            println!(
                "  {name}: bare SQL {bare:.0}/s, bare SQL on our table {same:.0}/s, postrider {ours:.0}/s, ratios {:.2} and {:.2}",
                ours / bare,
                ours / same
            );
            ratios.push(ours / bare);
            on_ours.push(ours / same);
            rates.push(ours);
        }
        println!(
            "drain on {}, {name}: median ratio {:.2} to bare SQL on a table with one index, {:.2} on our table, median {:.0} messages/s",
            S::NAME,
            median(ratios),
            median(on_ours),
            median(rates)
        );
    }
    Ok(())
}

/// The bare loop on a table with nothing but what it needs.
async fn bare_rate<S: Subject>(subject: &S, messages: usize, delete: bool) -> Result<f64> {
    let pool = subject.fresh().await?;
    S::fill_bare(&pool, messages, &payload().to_string()).await?;
    bare_loop::<S>(&pool, "bare", messages, delete).await
}

/// The same loop on our table, whose indexes also serve expired leases, lanes, dedupe keys and retention.
async fn same_table_rate<S: Subject>(subject: &S, messages: usize, delete: bool) -> Result<f64> {
    let pool = subject.fresh().await?;
    let store = S::store(&pool).await?;
    S::fill(&pool, &store, messages).await?;
    bare_loop::<S>(&pool, "outbox_messages", messages, delete).await
}

async fn bare_loop<S: Subject>(pool: &S::Pool, table: &str, messages: usize, delete: bool) -> Result<f64> {
    S::settle_down(pool).await?;
    let started = Instant::now();
    let drained = S::drain_bare(pool, table, delete).await?;
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    ensure!(drained == messages, "drained {drained}");
    Ok(rate)
}

async fn our_rate<S: Subject>(subject: &S, messages: usize, delete: bool) -> Result<f64> {
    let pool = subject.fresh().await?;
    let store = S::store(&pool).await?;
    S::fill(&pool, &store, messages).await?;
    S::settle_down(&pool).await?;
    let started = Instant::now();
    drain(store, messages, delete).await?;
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    let open = S::left(&pool).await?;
    ensure!(open == 0, "{open} rows were not delivered");
    Ok(rate)
}

async fn drain(store: impl Store, messages: usize, delete: bool) -> Result<()> {
    let (seen, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let sink = callback({
        let (seen, all) = (seen.clone(), all.clone());
        move |_message| {
            if seen.fetch_add(1, Ordering::Relaxed) + 1 == messages {
                all.notify_one();
            }
            async { Ok::<(), PublishError>(()) }
        }
    });
    let delivered = if delete { Delivered::Delete } else { Delivered::Keep };
    let batch: u32 = std::env::var("BATCH").ok().map_or(Ok(1_000), |text| text.parse())?;
    let dispatcher = Dispatcher::builder(store, sink).batch_size(batch).delivered(delivered).build()?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    all.notified().await;
    stop.cancel();
    ensure!(running.await?.abandoned == 0, "publishes were abandoned");
    Ok(())
}
