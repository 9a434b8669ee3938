//! A process on an SQLite file for tests with several of them: `sqlite_process writer FILE COUNT` or
//! `sqlite_process relay FILE ARRIVALS`.
//!
//! A writer commits orders together with their messages until the file holds COUNT of them, rolls every third
//! transaction or so back, prints `busy` whenever the write lock could not be had, and ends by itself. A relay appends the id of each message to the file ARRIVALS. Both print `ready`, and end when
//! their standard input closes, so that they never outlive the test that started them.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use postrider::{Dispatcher, Message, PublishError, SqliteStore, callback};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const TEST_IS_GONE: i32 = 5;

#[tokio::main]
async fn main() -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(TEST_IS_GONE);
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, file, last] = &arguments[..] else { bail!("usage: writer FILE COUNT, or relay FILE ARRIVALS") };
    let store = SqliteStore::open(file).await?;
    match role.as_str() {
        "writer" => write(store, last.parse().context("COUNT is no number")?).await,
        "relay" => relay(store, last).await,
        _ => bail!("{role} is no role"),
    }
}

async fn write(store: SqliteStore, count: i64) -> Result<()> {
    let outbox = store.outbox();
    println!("ready");
    loop {
        let written: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(store.pool()).await?;
        if written >= count {
            println!("done");
            return Ok(());
        }
        for _ in 0..20 {
            let dice = Uuid::new_v4().into_bytes();
            let mut transaction = match store.pool().begin_with("begin immediate").await {
                Err(error) if is_busy(&error) => {
                    println!("busy");
                    continue;
                }
                begun => begun?,
            };
            for order in 0..1 + dice[0] % 10 {
                let message = Message::json("shop", "order.placed", &order).key(order.to_string());
                let id = message.id().hyphenated();
                sqlx::query("insert into orders (id) values (?1)").bind(id).execute(&mut *transaction).await?;
                outbox.enqueue(&mut transaction, message).await?;
            }
            match dice[1] % 10 < 3 {
                true => transaction.rollback().await?,
                false => transaction.commit().await?,
            }
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| matches!(code & 0xFF, 5 | 6))
}

async fn relay(store: SqliteStore, arrivals: &str) -> Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(arrivals)?;
    let file = Arc::new(Mutex::new(file));
    let sink = callback(move |message| {
        let file = file.clone();
        async move {
            let line = format!("{}\n", message.id);
            let mut file = file.lock().map_err(|_| PublishError::unknown("a writer panicked"))?;
            file.write_all(line.as_bytes()).map_err(|error| PublishError::unknown(error.to_string()))
        }
    });
    let poll = std::env::var("POLL_SECONDS").map_or(Ok(2), |seconds| seconds.parse())?;
    let poll = Duration::from_secs(poll);
    let dispatcher =
        Dispatcher::builder(store, sink).lease(3 * poll).poll_interval(poll).batch_size(50).max_rows(100).build()?;
    println!("ready");
    let ended = dispatcher.run(CancellationToken::new()).await;
    bail!("the relay ended by itself: {ended:?}")
}
