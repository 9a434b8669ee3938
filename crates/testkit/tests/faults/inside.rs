//! A dispatcher inside the test process, for faults between it and its database.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use postrider::{Dispatcher, DispatcherBuilder, Ended, Names, PostgresStore, PublishError, callback};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::checker::Bounds;
use testkit::checker::arrivals::Recorder;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::scene::Scene;

pub const LEASE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(100);
const MAX_ATTEMPTS: u32 = 10;

/// What a run of such a dispatcher may show.
pub fn bounds(duplicates: i64) -> Bounds {
    Bounds { duplicates, max_attempts: MAX_ATTEMPTS as i32, overdue: 2 * POLL + LEASE / 2, told: Vec::new() }
}

/// A running dispatcher and its pool.
pub struct Inside {
    pool: PgPool,
    stop: CancellationToken,
    running: JoinHandle<Ended>,
}

impl Inside {
    /// Starts a dispatcher that reaches the outbox at `url`; each message takes the sink so long.
    pub async fn start(
        scene: &Scene,
        url: &str,
        delay: Duration,
        adapt: impl FnOnce(DispatcherBuilder) -> DispatcherBuilder,
    ) -> Result<Self> {
        let worker = Uuid::now_v7();
        let options: PgConnectOptions = url.parse()?;
        let options = options.application_name(&worker.to_string());
        let pool = PgPoolOptions::new().max_connections(5).connect_with(options).await?;
        let recorder = Recorder::connect(&scene.record.url()).await?;
        let sink = callback(move |message| {
            let recorder = recorder.clone();
            async move {
                let begun = SystemTime::now();
                tokio::time::sleep(delay).await;
                recorder.record(message, begun).await.map_err(|error| PublishError::unknown(error.to_string()))
            }
        });
        let builder = Dispatcher::builder(PostgresStore::new(pool.clone(), Names::default()), sink)
            .worker_id(worker)
            .lease(LEASE)
            .poll_interval(POLL)
            .max_attempts(MAX_ATTEMPTS)
            .backoff(POLL, POLL * 10);
        let stop = CancellationToken::new();
        let running = tokio::spawn(adapt(builder).build()?.run(stop.clone()));
        Ok(Self { pool, stop, running })
    }

    /// Tells it to stop and waits for its end.
    pub async fn stop(self) -> Result<(Ended, PgPool)> {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(120), self.running).await??;
        Ok((ended, self.pool))
    }
}
