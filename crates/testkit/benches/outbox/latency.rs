//! From just before the enqueue statement to the handler, while the relay is idle between messages.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use postrider::{Dispatcher, Message, Names, PostgresStore, PublishError, callback};
use testkit::Postgres;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const MESSAGES: u32 = 500;

pub async fn run(server: &Postgres) -> Result<()> {
    for per_second in [50, 100] {
        let histogram = measure(server, Duration::from_secs(1) / per_second).await?;
        println!(
            "latency at {per_second}/s, statement to handler: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            histogram.value_at_quantile(0.5) as f64 / 1e3,
            histogram.value_at_quantile(0.99) as f64 / 1e3,
            histogram.max() as f64 / 1e3
        );
    }
    Ok(())
}

async fn measure(server: &Postgres, interval: Duration) -> Result<Histogram<u64>> {
    let pool = server.create_database().await?.pool().await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await?;
    let outbox = store.outbox();
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let sink = callback(move |message| {
        let _ = arrived.send((message.id, Instant::now()));
        async { Ok::<(), PublishError>(()) }
    });
    let stop = CancellationToken::new();
    let running = tokio::spawn(Dispatcher::builder(store, sink).build()?.run(stop.clone()));
    let mut histogram = Histogram::new(3)?;
    let mut ticks = tokio::time::interval(interval);
    let mut sent = std::collections::HashMap::new();
    for _ in 0..MESSAGES {
        ticks.tick().await;
        let message = Message::json("bench", "latency", &crate::payload());
        sent.insert(message.id(), Instant::now());
        let mut transaction = pool.begin().await?;
        let _new = outbox.enqueue(&mut transaction, message).await?;
        transaction.commit().await?;
    }
    for _ in 0..MESSAGES {
        let Some((id, at)) = arrivals.recv().await else { break };
        histogram.record(at.duration_since(sent[&id]).as_micros() as u64)?;
    }
    stop.cancel();
    let _ended = running.await?;
    Ok(histogram)
}
