//! The short form of chaos: the real binary, real databases and a real broker, kill -9 under load, then everything else that can go
//! wrong once, and the checkers I1 to I10.
//!
//! `cargo xtask chaos` is the long form; see docs/reliability.md. A failure prints its seed.

#![cfg(feature = "nats")]

use anyhow::{Result, ensure};
use testkit::chaos::{self, Act, Fault, Kind, Length, Plan, Verdict};
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

/// Everything that the store can have, once. A full disk is part of it where one can be mounted, and otherwise the output says that it is left out.
async fn survive_everything(store: Kind, seed: u64, messages: usize) -> Result<()> {
    let mut plan = plan(store, seed).everything();
    let acts: Vec<Act> = plan.acts().collect();
    plan.length = Length { cycles: Some(acts.len()), messages: Some(messages), time: None };
    let verdict = survive(plan).await?;
    for act in acts {
        let tally = verdict.coverage.of(act);
        ensure!(tally.made == 1 && tally.hit == 1, "{}: {tally:?}\n{verdict}", act.word());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_r27_r33_r35_r37_r49_i1_to_i10_hold_after_each_fault_has_hit_something_on_postgres() -> Result<()> {
    survive_everything(Kind::Postgres, 5, 2_000).await
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_r27_r33_r35_r37_r49_i1_to_i10_hold_after_each_fault_has_hit_something_on_mariadb() -> Result<()> {
    survive_everything(Kind::MariaDb, 5, 1_000).await
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_r27_r37_r49_i1_to_i10_hold_after_each_fault_has_hit_something_on_sqlite() -> Result<()> {
    survive_everything(Kind::Sqlite, 5, 1_000).await
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
