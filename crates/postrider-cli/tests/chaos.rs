//! The short form of chaos: the real binary, real databases and a real broker, kill -9 under load, and the checkers I1 to I10.
//!
//! `cargo xtask chaos` is the long form, with every kind of fault; see docs/reliability.md. A failure prints its seed.

#![cfg(feature = "nats")]

use anyhow::{Result, ensure};
use testkit::chaos::{self, Fault, Kind, Length, Plan, Verdict};
use tokio::sync::Mutex;

/// One at a time: each is made to use the whole machine.
static TURN: Mutex<()> = Mutex::const_new(());

async fn survive(plan: Plan) -> Result<Verdict> {
    let _turn = TURN.lock().await;
    let verdict = chaos::run(&plan, &|line| println!("{line}")).await?;
    println!("{verdict}");
    ensure!(verdict.has_passed(), "{verdict}");
    Ok(verdict)
}

fn plan(store: Kind, seed: u64) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_postrider"), store, seed)
}

#[tokio::test(flavor = "multi_thread")]
async fn r26_r60_i1_to_i10_hold_after_50_kills_and_20_000_messages_on_postgres() -> Result<()> {
    let verdict = survive(plan(Kind::Postgres, 26).short()).await?;
    ensure!(verdict.faults == 50 && verdict.report.messages >= 20_000, "{verdict}");
    ensure!(verdict.report.reclaims > 0, "no kill hit a relay that held something: {verdict}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r26_r60_i1_to_i10_hold_after_kills_under_load_on_mariadb() -> Result<()> {
    survive(plan(Kind::MariaDb, 26).short()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r26_r47_r60_i1_to_i10_hold_after_kills_under_load_on_sqlite() -> Result<()> {
    survive(plan(Kind::Sqlite, 26).short()).await?;
    Ok(())
}

/// What needs no root and no long outage.
#[tokio::test(flavor = "multi_thread")]
async fn r15_r27_r33_r35_r49_i1_to_i10_hold_after_faults_of_every_other_kind() -> Result<()> {
    let mut plan = plan(Kind::Postgres, 5);
    plan.faults = [Fault::Freeze, Fault::Restart, Fault::Network, Fault::Sink, Fault::Rolling].into();
    plan.length = Length { cycles: Some(10), messages: Some(2_000), time: None };
    let verdict = survive(plan).await?;
    ensure!(verdict.faults == 10, "{verdict}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r19_r27_rolling_restarts_lose_nothing_repeat_nothing_and_spend_no_attempt() -> Result<()> {
    let mut plan = plan(Kind::Postgres, 27);
    plan.faults = [Fault::Rolling].into();
    plan.length = Length { cycles: Some(5), messages: Some(5_000), time: None };
    let verdict = survive(plan).await?;
    ensure!(verdict.report.duplicates == 0 && verdict.exact_counters == 3, "{verdict}");
    Ok(())
}
