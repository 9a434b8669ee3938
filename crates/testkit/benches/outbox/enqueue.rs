//! On PostgreSQL: single enqueues from several clients, each in a transaction of its own, against a bare insert likewise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use postrider::{Message, Names, Outbox, PostgresStore};
use sqlx::PgPool;
use testkit::Postgres;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::bare::postgres as bare;
use crate::subject::Subject;
use crate::{median, payload};

const SLICE: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;

pub async fn run(server: &Postgres) -> Result<()> {
    let pool =
        server.create_database().await?.pool_with(|options| options.max_connections(40).min_connections(32)).await?;
    PostgresStore::new(pool.clone(), Names::default()).migrate().await?;
    bare::create(&pool).await?;
    println!("single enqueue: {ROUNDS} rounds of {SLICE:?} each");
    for clients in [1, 8, 32] {
        let (mut ratios, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            sqlx::raw_sql("truncate bare; truncate outbox_messages").execute(&pool).await?;
            Postgres::settle_down(&pool).await?;
            let bare = rate(&pool, clients, Kind::Bare).await?;
            Postgres::settle_down(&pool).await?;
            let ours = rate(&pool, clients, Kind::Postrider(Outbox::default())).await?;
            ratios.push(ours / bare);
            rates.push(ours);
        }
        println!(
            "single enqueue, {clients} clients: median ratio {:.2}, median {:.0} transactions/s",
            median(ratios),
            median(rates)
        );
    }
    Ok(())
}

#[derive(Clone)]
enum Kind {
    Bare,
    Postrider(Outbox),
}

async fn rate(pool: &PgPool, clients: usize, kind: Kind) -> Result<f64> {
    let (done, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (pool, kind, done) = (pool.clone(), kind.clone(), done.clone());
        tasks.spawn(async move {
            let payload = payload();
            while started.elapsed() < SLICE {
                let mut transaction = pool.begin().await?;
                match &kind {
                    Kind::Bare => {
                        let insert = sqlx::query(bare::INSERT).bind(Uuid::now_v7()).bind("bench").bind("enqueue");
                        insert.bind(payload.to_string()).execute(&mut *transaction).await?;
                    }
                    Kind::Postrider(outbox) => {
                        let _new =
                            outbox.enqueue(&mut transaction, Message::json("bench", "enqueue", &payload)).await?;
                    }
                }
                transaction.commit().await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), anyhow::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}
