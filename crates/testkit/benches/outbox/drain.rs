//! Draining a backlog through the real dispatcher with a sink that does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use postrider::store::Delivered;
use postrider::{Dispatcher, Message, Names, PostgresStore, PublishError, callback};
use sqlx::PgPool;
use testkit::Postgres;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{bare, median, payload, settle_down};

const ROUNDS: usize = 3;

pub async fn run(server: &Postgres) -> Result<()> {
    let messages: usize = std::env::var("MESSAGES").ok().map_or(Ok(200_000), |text| text.parse())?;
    println!("drain: {messages} messages of 200 bytes, {ROUNDS} rounds");
    for (name, delete) in [("ack by update (rows kept)", false), ("ack by delete", true)] {
        let (mut ratios, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let bare = bare_rate(server, messages, delete).await?;
            let ours = our_rate(server, messages, delete).await?;
            println!("  {name}: bare SQL {bare:.0}/s, postrider {ours:.0}/s, ratio {:.2}", ours / bare);
            ratios.push(ours / bare);
            rates.push(ours);
        }
        println!("drain, {name}: median ratio {:.2}, median {:.0} messages/s", median(ratios), median(rates));
    }
    Ok(())
}

async fn bare_rate(server: &Postgres, messages: usize, delete: bool) -> Result<f64> {
    let pool = server.create_database().await?.pool().await?;
    bare::create(&pool).await?;
    bare::fill(&pool, messages, &payload().to_string()).await?;
    settle_down(&pool).await?;
    let started = Instant::now();
    let drained = bare::drain(&pool, delete).await?;
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    ensure!(drained == messages, "drained {drained}");
    Ok(rate)
}

async fn our_rate(server: &Postgres, messages: usize, delete: bool) -> Result<f64> {
    let pool = server.create_database().await?.pool().await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await?;
    fill(&pool, &store, messages).await?;
    settle_down(&pool).await?;
    let started = Instant::now();
    drain(store, messages, delete).await?;
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    let (open,): (i64,) =
        sqlx::query_as("select count(*) from outbox_messages where status <> 'delivered'").fetch_one(&pool).await?;
    ensure!(open == 0, "{open} rows were not delivered");
    Ok(rate)
}

async fn fill(pool: &PgPool, store: &PostgresStore, messages: usize) -> Result<()> {
    let (outbox, payload) = (store.outbox(), payload());
    for _ in 0..messages / 1_000 {
        let batch = (0..1_000).map(|_| Message::json("bench", "drain", &payload));
        let mut transaction = pool.begin().await?;
        outbox.enqueue_many(&mut transaction, batch).await?;
        transaction.commit().await?;
    }
    Ok(())
}

async fn drain(store: PostgresStore, messages: usize, delete: bool) -> Result<()> {
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
