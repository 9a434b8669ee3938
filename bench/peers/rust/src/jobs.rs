//! The three jobs, for any peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::report::{Latency, Report};
use crate::{Args, Job, Ledger, Peer};

/// Messages in a transaction while a backlog is written.
const FILL: u32 = 1_000;
/// Messages before those whose latency counts: connections are made, plans cached.
const WARM_UP: u32 = 20;
/// Transactions of each client before the clock starts.
const WARM_UP_WRITES: u32 = 3;
/// How often it is asked whether all is settled.
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run<P: Peer>(args: &Args) -> Result<Report> {
    let peer = Arc::new(P::set_up(args).await.context("cannot set it up")?);
    let side = side(&args.url).await?;
    let mut report = match args.job {
        Job::Enqueue => enqueue(peer.clone(), &side, args).await?,
        Job::Drain => drain(&*peer, &side, args).await?,
        Job::Latency => latency(peer.clone(), &side, args).await?,
    };
    report.peer = P::NAME;
    report.settings = peer.settings();
    Ok(report)
}

/// A connection to look on with, which is no part of what is measured.
async fn side(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The server finishes what earlier work left to do.
async fn settle_down(side: &Client) -> Result<()> {
    side.simple_query("vacuum analyze").await?;
    side.simple_query("checkpoint").await?;
    Ok(())
}

/// Waits until every message is settled; answers how many are not.
async fn settled<P: Peer>(side: &Client) -> Result<i64> {
    let began = Instant::now();
    loop {
        let open: i64 = side.query_one(P::OPEN, &[]).await?.get(0);
        if open == 0 || began.elapsed() > PATIENCE {
            return Ok(open);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn enqueue<P: Peer>(peer: Arc<P>, side: &Client, args: &Args) -> Result<Report> {
    let mut clients = Vec::new();
    for _ in 0..args.clients {
        clients.push(peer.client().await?);
    }
    let (each, mut warm) = (args.per_call, 0);
    for client in &mut clients {
        for _ in 0..WARM_UP_WRITES {
            peer.write(client, warm, each).await?;
            warm += each;
        }
    }
    settle_down(side).await?;
    let (next, mut writing) = (Arc::new(AtomicU32::new(warm)), JoinSet::new());
    let (began, lasts) = (Instant::now(), Duration::from_secs_f64(args.seconds));
    for mut client in clients {
        let (peer, next) = (peer.clone(), next.clone());
        writing.spawn(async move {
            while began.elapsed() < lasts {
                peer.write(&mut client, next.fetch_add(each, Ordering::Relaxed), each).await?;
            }
            anyhow::Ok(client)
        });
    }
    while let Some(ended) = writing.join_next().await {
        drop(ended??);
    }
    let seconds = began.elapsed().as_secs_f64();
    let ledger = Ledger::new(next.load(Ordering::Relaxed));
    for row in side.query(P::NUMBERS, &[]).await? {
        ledger.note(u32::try_from(row.get::<_, i64>(0))?);
    }
    let messages = ledger.messages() - warm;
    let per_second = f64::from(messages) / seconds;
    Ok(Report { job: "enqueue", messages, seconds, per_second, ..Report::default() }.checked(&ledger))
}

async fn drain<P: Peer>(peer: &P, side: &Client, args: &Args) -> Result<Report> {
    let mut client = peer.client().await?;
    for first in (0..args.messages).step_by(FILL as usize) {
        peer.write(&mut client, first, FILL.min(args.messages - first)).await?;
    }
    drop(client);
    peer.after_fill().await?;
    settle_down(side).await?;
    let waiting: i64 = side.query_one(P::OPEN, &[]).await?.get(0);
    ensure!(waiting >= i64::from(args.messages), "the table holds {waiting} of {} messages", args.messages);
    let ledger = Arc::new(Ledger::new(args.messages));
    let began = Instant::now();
    let worker = peer.start(ledger.clone()).await?;
    ledger.complete().await?;
    let open = settled::<P>(side).await?;
    let seconds = began.elapsed().as_secs_f64();
    peer.stop(worker).await?;
    let per_second = f64::from(args.messages) / seconds;
    let report = Report { job: "drain", messages: args.messages, seconds, per_second, open, ..Report::default() };
    Ok(report.checked(&ledger))
}

async fn latency<P: Peer>(peer: Arc<P>, side: &Client, args: &Args) -> Result<Report> {
    let messages = WARM_UP + ((f64::from(args.rate) * args.seconds) as u32).max(1);
    let mut client = peer.client().await?;
    settle_down(side).await?;
    let ledger = Arc::new(Ledger::new(messages));
    let worker = peer.start(ledger.clone()).await?;
    let began = Instant::now();
    let mut written = Vec::with_capacity(messages as usize);
    for n in 0..messages {
        let due = Duration::from_secs_f64(f64::from(n) / f64::from(args.rate));
        tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        written.push(ledger.now());
        peer.write(&mut client, n, 1).await?;
    }
    ledger.complete().await?;
    let seconds = began.elapsed().as_secs_f64();
    let open = settled::<P>(side).await?;
    peer.stop(worker).await?;
    let took = (WARM_UP..messages).filter_map(|n| Some(ledger.arrived(n)?.saturating_sub(written[n as usize])));
    let latency_ms = Latency::of(took.collect());
    let per_second = f64::from(messages) / seconds;
    let report = Report { job: "latency", messages, seconds, per_second, latency_ms, open, ..Report::default() };
    Ok(report.checked(&ledger))
}
