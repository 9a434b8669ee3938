//! A transaction of somebody else that stays open: dead row versions are kept for it, and claims walk over them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use postrider::examine::Thresholds;
use postrider::operate::{Finding, Severity};
use postrider::postgres::statements::StoreStatements;
use postrider::{Dispatcher, Layout, Names, PostgresStore, PublishError, Store, callback};
use sqlx::{AssertSqlSafe, PgPool, Row};
use testkit::{Database, Postgres, within};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const SOON: Duration = Duration::from_secs(60);
/// So many finished rows before somebody opens a transaction, and so many while it is open.
const HISTORY: u32 = 50_000;
const SINCE: u32 = 20_000;

async fn outbox() -> Result<(Database, PgPool)> {
    let database = Postgres::shared().await?.create_database().await?;
    let pool = database.pool().await?;
    PostgresStore::new(pool.clone(), Names::default()).migrate().await?;
    Ok((database, pool))
}

async fn run(pool: &PgPool, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await?;
    Ok(())
}

/// Writes rows and takes them through claim and ack, as relays do: two dead versions for each.
async fn finish(pool: &PgPool, rows: u32) -> Result<()> {
    enqueue(pool, rows).await?;
    run(
        pool,
        "update outbox_messages set status = 'processing', attempts = 1, locked_by = gen_random_uuid(),
           locked_until = now() + interval '1 minute' where status = 'pending';
         update outbox_messages set status = 'delivered', locked_by = null, locked_until = null, delivered_at = now()
           where status = 'processing'",
    )
    .await
}

async fn enqueue(pool: &PgPool, rows: u32) -> Result<()> {
    let sql =
        "insert into outbox_messages (namespace, topic, payload) select 'shop', 'order', '{}' from generate_series(1, ";
    run(pool, &format!("{sql}{rows})")).await
}

/// What a claim of 100 reads, in pages, and its plan. Nothing is changed by it.
async fn claim_reads(pool: &PgPool) -> Result<(u64, String)> {
    let claim = &StoreStatements::render(&Layout::default()).claim;
    let sql = format!("explain (analyze, buffers, timing off) {claim}");
    let mut transaction = pool.begin().await?;
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(None::<Vec<String>>).bind(None::<Uuid>).bind(10_i32);
    let rows = rows.bind(100_i64).bind(Uuid::from_u128(1)).bind(60_000_000_i64).bind(1_000_000_i64);
    let rows = rows.fetch_all(&mut *transaction).await?;
    transaction.rollback().await?;
    let lines: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let plan = lines.join("\n");
    let whole = lines.iter().find_map(|line| line.trim().strip_prefix("Buffers: shared ")).context("no buffers")?;
    let pages =
        |kind: &str| whole.split(' ').find_map(|word| word.strip_prefix(kind)?.parse::<u64>().ok()).unwrap_or(0);
    ensure!(plan.contains("rows=100 "), "it takes a hundred:\n{plan}");
    ensure!(!plan.contains("Seq Scan on outbox_messages"), "it reads the whole table:\n{plan}");
    Ok((pages("hit=") + pages("read="), plan))
}

#[tokio::test]
async fn r39_while_a_transaction_stays_open_a_claim_pays_for_what_was_delivered_since_and_no_more() -> Result<()> {
    let (_database, pool) = outbox().await?;
    finish(&pool, HISTORY).await?;
    run(&pool, "vacuum analyze outbox_messages").await?;
    enqueue(&pool, 1_000).await?;
    let (alone, _) = claim_reads(&pool).await?;

    let mut holder = pool.begin_with("begin isolation level repeatable read").await?;
    sqlx::query("select count(*) from outbox_messages").execute(&mut *holder).await?;
    let (at_first, _) = claim_reads(&pool).await?;
    ensure!(at_first <= alone * 3 / 2, "history costs nothing: {alone} pages without it, {at_first} with it");

    finish(&pool, SINCE).await?;
    enqueue(&pool, 1_000).await?;
    run(&pool, "vacuum outbox_messages").await?;
    let (held, plan) = claim_reads(&pool).await?;
    println!("r39: {alone} pages alone, {held} after {SINCE} deliveries under an open transaction");
    ensure!(held <= alone * 3, "a claim reads {held} pages and {alone} alone:\n{plan}");
    ensure!(held > alone + 100, "nothing was held back, so nothing is shown: {alone} and {held} pages");

    holder.rollback().await?;
    run(&pool, "vacuum outbox_messages").await?;
    let (after, plan) = claim_reads(&pool).await?;
    ensure!(after <= alone * 3 / 2, "once it has ended all is as before: {alone} and {after} pages:\n{plan}");
    Ok(())
}

/// What the gauge says, if there is one.
fn gauge(snapshotter: &Snapshotter) -> Option<f64> {
    let found = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .find_map(|(key, _, _, value)| (key.key().name() == "postrider_oldest_xmin_age").then_some(value))?;
    let DebugValue::Gauge(value) = found else { return None };
    Some(value.into_inner())
}

/// Runs a dispatcher until it has counted, and answers what the gauge says then.
fn counted(url: &str) -> Result<f64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let told = AtomicU64::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let pool = PgPool::connect(url).await?;
            let store = PostgresStore::new(pool, Names::default());
            let sink = callback(|_| async { Ok::<(), PublishError>(()) });
            let stop = CancellationToken::new();
            let running = tokio::spawn(Dispatcher::builder(store, sink).build()?.run(stop.clone()));
            let is_told = || async {
                let value = gauge(&snapshotter);
                value.iter().for_each(|value| told.store(value.to_bits(), Ordering::Relaxed));
                value.is_some()
            };
            within(SOON, "a count", is_told).await?;
            stop.cancel();
            let _ended = running.await?;
            anyhow::Ok(())
        })
    })?;
    Ok(f64::from_bits(told.load(Ordering::Relaxed)))
}

#[tokio::test]
async fn r39_a_metric_tells_for_how_long_a_transaction_has_been_open() -> Result<()> {
    let (database, pool) = outbox().await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    let age = async || anyhow::Ok(store.oldest_xmin_age().await?.context("PostgreSQL tells it")?.as_secs_f64());
    let old = 3.0;
    ensure!(age().await? < old, "nobody holds anything");

    let mut holder = pool.begin_with("begin isolation level repeatable read").await?;
    sqlx::query("select count(*) from outbox_messages").execute(&mut *holder).await?;
    within(SOON, "an old transaction", || async { age().await.is_ok_and(|age| age >= old) }).await?;
    let url = database.url();
    let told = tokio::task::spawn_blocking(move || counted(&url)).await??;
    ensure!((old..600.0).contains(&told), "the gauge says {told}");
    holder.rollback().await?;
    ensure!(age().await? < old, "it has ended");
    Ok(())
}

#[tokio::test]
async fn r39_a_session_that_has_written_and_a_prepared_transaction_hold_cleaning_back_too() -> Result<()> {
    let server = Postgres::builder().setting("max_prepared_transactions", "5").start().await?;
    let database = server.create_database().await?;
    let pool = database.pool().await?;
    let store = PostgresStore::new(pool.clone(), Names::default());
    store.migrate().await?;
    let age = async || anyhow::Ok(store.oldest_xmin_age().await?.context("PostgreSQL tells it")?.as_secs_f64());
    let is_old = || async { age().await.is_ok_and(|age| age >= 2.0) };

    // Between two statements a READ COMMITTED transaction has no snapshot, but what it wrote has its number.
    let mut writer = pool.begin().await?;
    sqlx::query("insert into outbox_messages (namespace, topic, payload) values ('shop', 'order', '{}')")
        .execute(&mut *writer)
        .await?;
    within(SOON, "an old writer", is_old).await?;
    let thresholds = Thresholds { transaction: Duration::from_secs(1), ..Thresholds::default() };
    let findings = store.examine_within(&thresholds).await?;
    let names_it = |finding: &Finding| finding.name == "long-transaction" && finding.severity == Severity::Warning;
    ensure!(findings.iter().any(names_it), "the doctor names it: {findings:#?}");
    sqlx::query("prepare transaction 'forgotten'").execute(&mut *writer).await?;
    let _ended = writer.rollback().await;
    within(SOON, "an old prepared transaction", is_old).await?;
    sqlx::query("rollback prepared 'forgotten'").execute(&pool).await?;
    ensure!(age().await? < 2.0, "all have ended");
    // Who is in another database holds nothing of this one back.
    let other = server.create_database().await?.pool().await?;
    let mut elsewhere = other.begin_with("begin isolation level repeatable read").await?;
    let open = "select extract(epoch from clock_timestamp() - now())::float8";
    let is_open = sqlx::query_scalar::<_, f64>(open);
    let _first: f64 = is_open.fetch_one(&mut *elsewhere).await?;
    loop {
        if sqlx::query_scalar::<_, f64>(open).fetch_one(&mut *elsewhere).await? >= 2.0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(age().await? < 2.0, "it is another database's");
    Ok(())
}
