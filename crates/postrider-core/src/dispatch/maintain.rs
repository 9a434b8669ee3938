//! The slow duties: burying exhausted rows, deleting old ones, counting.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::shared::Shared;
use crate::sabotage::{self, Defect};
use crate::store::{Finished, Purge};

/// Rows per sweep and per purge statement, so that none holds locks for long.
const CHUNK: u32 = 1_000;
/// How often old rows are looked for.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);
/// How often the gauges are brought up to date.
const STATS_INTERVAL: Duration = Duration::from_secs(15);

/// Maintains until the dispatcher is done.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut duties = [Timer::new(shared.config.sweep_interval), Timer::new(PURGE_INTERVAL), Timer::new(STATS_INTERVAL)];
    loop {
        let [sweep_timer, purge_timer, stats_timer] = &mut duties;
        if sweep_timer.is_due() && !sabotage::has(Defect::NoSweep) {
            sweep(&shared).await;
        }
        if purge_timer.is_due() {
            purge(&shared, Finished::Delivered, shared.config.keep_delivered).await;
            purge(&shared, Finished::Dead, shared.config.keep_dead).await;
        }
        if stats_timer.is_due() {
            count(&shared).await;
        }
        let next = duties.iter().map(|timer| timer.next).min().unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

struct Timer {
    interval: Duration,
    next: Instant,
}

impl Timer {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now() }
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next;
        if due {
            self.next = now + self.interval;
        }
        due
    }
}

async fn sweep(shared: &Shared) {
    let config = &shared.config;
    loop {
        let sweep = shared.store.sweep(&config.scope, config.max_attempts, CHUNK);
        let Ok(swept) = shared.call("sweep", sweep).await else { return };
        swept.buried.iter().for_each(|id| shared.metrics.swept(*id));
        if !swept.buried.is_empty() {
            // What waited for them may be claimed now.
            shared.freed.notify_one();
        }
        if swept.suspects {
            shared.note_suspects(true);
        }
        if swept.buried.len() < CHUNK as usize || shared.stop.is_cancelled() {
            return;
        }
    }
}

async fn purge(shared: &Shared, finished: Finished, age: Option<Duration>) {
    let Some(older_than) = age else { return };
    let purge = Purge { scope: shared.config.scope.clone(), finished, older_than, limit: CHUNK };
    let mut deleted = 0;
    while let Ok(rows) = shared.call("purge", shared.store.purge(&purge)).await {
        deleted += rows;
        if rows < u64::from(CHUNK) || shared.stop.is_cancelled() {
            break;
        }
        // Others get at the table between two chunks.
        sleep(Duration::from_millis(1)).await;
    }
    if deleted > 0 {
        tracing::info!(dispatcher = %shared.config.name, rows = deleted, ?finished, "old rows deleted");
    }
}

async fn count(shared: &Shared) {
    if let Ok(stats) = shared.call("stats", shared.store.stats(&shared.config.scope)).await {
        shared.metrics.stats(&stats);
        shared.pulse.counted(stats);
    }
    if let Ok(Some(age)) = shared.call("oldest_xmin_age", shared.store.oldest_xmin_age()).await {
        shared.metrics.oldest_xmin_age(age);
    }
}
