//! From just before the enqueue statement to the handler, while the relay is idle between messages.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use postrider::{Dispatcher, Message, PublishError, callback};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::subject::Subject;

const MESSAGES: u32 = 500;

pub async fn run<S: Subject>(subject: &S) -> Result<()> {
    for per_second in [50, 100] {
        let histogram = measure(subject, Duration::from_secs(1) / per_second).await?;
        println!(
            "latency on {} at {per_second}/s, statement to handler: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            S::NAME,
            histogram.value_at_quantile(0.5) as f64 / 1e3,
            histogram.value_at_quantile(0.99) as f64 / 1e3,
            histogram.max() as f64 / 1e3
        );
    }
    Ok(())
}

async fn measure<S: Subject>(subject: &S, interval: Duration) -> Result<Histogram<u64>> {
    let pool = subject.fresh().await?;
    let store = S::store(&pool).await?;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let sink = callback(move |message| {
        let _ = arrived.send((message.id, Instant::now()));
        async { Ok::<(), PublishError>(()) }
    });
    let stop = CancellationToken::new();
    let running = tokio::spawn(Dispatcher::builder(store.clone(), sink).build()?.run(stop.clone()));
    let mut histogram = Histogram::new(3)?;
    let mut ticks = tokio::time::interval(interval);
    let mut sent = std::collections::HashMap::new();
    for _ in 0..MESSAGES {
        ticks.tick().await;
        let message = Message::json("bench", "latency", &crate::payload());
        sent.insert(message.id(), Instant::now());
        S::enqueue(&pool, &store, vec![message]).await?;
    }
    for _ in 0..MESSAGES {
        let Some((id, at)) = arrivals.recv().await else { break };
        histogram.record(at.duration_since(sent[&id]).as_micros() as u64)?;
    }
    stop.cancel();
    let _ended = running.await?;
    Ok(histogram)
}
