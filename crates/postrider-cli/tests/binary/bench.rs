//! `postrider bench`: that it measures what it says, checks what arrives, and leaves nothing behind. Never how fast anything is.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testkit::{Postgres, Signal, within};

#[cfg(feature = "http")]
use crate::support::Receiver;
use crate::support::{PATIENCE, Ran, postrider};

/// One of each kind that needs no broker and no gigabytes.
const KINDS: [&str; 9] = [
    "enqueue-8",
    "enqueue-100",
    "drain-keep",
    "drain-in-order",
    "drain-by-key",
    "idle-50",
    "snapshot",
    "relays-2",
    "slow-sink",
];

async fn bench(arguments: &[&str], directory: &Path) -> Result<Ran> {
    let mut all = vec!["bench"];
    all.extend(arguments);
    postrider(&all, &[], None, directory).await
}

/// A quick run of one of each kind on a database; its report.
async fn quick(url: &str) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let mut arguments = vec!["run", "--quick", "--database-url", url, "--json", "found.json", "--report", "page"];
    arguments.extend(KINDS);
    let ran = bench(&arguments, directory.path()).await?.succeeded()?;
    ensure!(ran.out.contains("every message arrived once"), "{ran:#?}");
    let page = std::fs::read_to_string(directory.path().join("page/report.md"))?;
    ensure!(page.contains("| drain-keep |") && page.contains("]("), "{page}");
    for file in std::fs::read_dir(directory.path().join("page"))? {
        let file = file?.path();
        let is_plot = file.extension().is_some_and(|extension| extension == "svg");
        ensure!(!is_plot || std::fs::read_to_string(&file)?.starts_with("<svg"), "{}", file.display());
    }
    Ok(serde_json::from_str(&std::fs::read_to_string(directory.path().join("found.json"))?)?)
}

/// What every report has.
fn check(report: &Value, database: &str) -> Result<()> {
    ensure!(
        report["schema"] == 1 && report["quick"] == true && report["machine"]["cores"].as_u64() > Some(0),
        "{report:#}"
    );
    let on = &report["databases"][0];
    ensure!(on["database"] == database && !on["settings"].as_object().context("settings")?.is_empty(), "{on:#}");
    let scenarios = on["scenarios"].as_array().context("scenarios")?;
    ensure!(scenarios.len() == KINDS.len(), "{on:#}");
    for scenario in scenarios {
        ensure!(scenario["broken"] == json!([]), "{scenario:#}");
        for side in ["bare", "ours"] {
            let measured = &scenario["rounds"][0][side];
            ensure!(
                measured["messages"].as_u64() > Some(0) && measured["seconds"].as_f64() > Some(0.0),
                "{scenario:#}"
            );
            let is_of_latency = scenario["kind"] == "idle";
            ensure!(measured["latency"]["p99"].is_f64() == is_of_latency, "{scenario:#}");
            ensure!(measured["peak_memory"].as_u64().is_none_or(|bytes| bytes > 1_000_000), "{scenario:#}");
        }
        ensure!(scenario["summary"]["messages_per_second"]["ours"]["median"].as_f64() > Some(0.0), "{scenario:#}");
    }
    Ok(())
}

#[tokio::test]
async fn a_quick_run_on_sqlite_is_complete_and_leaves_nothing_behind() -> Result<()> {
    let directory = tempfile::tempdir()?;
    check(&quick(&format!("sqlite:{}", directory.path().display())).await?, "sqlite")?;
    ensure!(std::fs::read_dir(directory.path())?.next().is_none(), "something is left");
    Ok(())
}

#[tokio::test]
async fn a_quick_run_on_postgres_tells_what_the_server_used_and_drops_its_database() -> Result<()> {
    let server = Postgres::start().await?;
    let report = quick(&server.url("postgres")).await?;
    check(&report, "postgres")?;
    let drained = &report["databases"][0]["scenarios"][2];
    for side in ["bare", "same_table", "ours"] {
        let measured = &drained["rounds"][0][side];
        ensure!(measured["server_cpu_us"].is_f64() && measured["log_bytes"].as_f64() > Some(100.0), "{drained:#}");
    }
    ensure!(databases(&server).await? == 0, "the database is still there");
    Ok(())
}

/// How many databases of benchmarks there are.
async fn databases(server: &Postgres) -> Result<i64> {
    let mut admin = PgConnection::connect(&server.url("postgres")).await?;
    let count = "select count(*) from pg_database where datname like 'postrider\\_bench\\_%'";
    Ok(sqlx::query_scalar(count).fetch_one(&mut admin).await?)
}

#[tokio::test]
async fn ctrl_c_ends_a_run_and_drops_its_database() -> Result<()> {
    let (server, directory) = (Postgres::start().await?, tempfile::tempdir()?);
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["bench", "run", "idle-50", "drain-by-key", "--database-url", &server.url("postgres")])
        .current_dir(&directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    within(PATIENCE, "a database", || async { databases(&server).await.is_ok_and(|count| count == 1) }).await?;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id().context("it ended")?)?);
    nix::sys::signal::kill(pid, Signal::SIGINT)?;
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await??;
    ensure!(ended.code() == Some(130), "{ended}");
    ensure!(databases(&server).await? == 0, "the database is still there");
    Ok(())
}

#[tokio::test]
async fn a_role_that_may_not_create_databases_is_told_so() -> Result<()> {
    let (server, directory) = (Postgres::start().await?, tempfile::tempdir()?);
    let mut admin = PgConnection::connect(&server.url("postgres")).await?;
    sqlx::raw_sql("create role plain login").execute(&mut admin).await?;
    let url = server.url("postgres").replace("postgres@", "plain@");
    let ran = bench(&["run", "--quick", "--database-url", &url], directory.path()).await?.failed_with(1)?;
    ensure!(ran.err.contains("may not create databases") && ran.err.contains("createdb"), "{ran:#?}");
    Ok(())
}

/// A row is written twice behind the benchmark's back: one message more arrives than was sent.
#[tokio::test]
async fn a_broken_result_fails_the_run() -> Result<()> {
    let (server, directory) = (Postgres::start().await?, tempfile::tempdir()?);
    let url = server.url("postgres");
    let arguments = ["run", "slow-sink", "--rounds", "1", "--database-url", &url, "--json", "found.json"];
    let (ran, sabotaged) = tokio::join!(bench(&arguments, directory.path()), sabotage(&server));
    sabotaged?;
    let ran = ran?.failed_with(1)?;
    ensure!(ran.err.contains("the result is broken") && ran.err.contains("slow-sink on postgres"), "{ran:#?}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(directory.path().join("found.json"))?)?;
    ensure!(report["databases"][0]["scenarios"][0]["broken"][0].is_string(), "{report:#}");
    Ok(())
}

async fn sabotage(server: &Postgres) -> Result<()> {
    within(PATIENCE, "a row to write twice", || async { wrote_one_twice(server).await.unwrap_or(false) }).await
}

/// The database and the table may not be there yet, and the table is empty while the bare side runs.
async fn wrote_one_twice(server: &Postgres) -> Result<bool> {
    let mut admin = PgConnection::connect(&server.url("postgres")).await?;
    let find = "select datname from pg_database where datname like 'postrider\\_bench\\_%'";
    let Some(name) = sqlx::query_scalar::<_, String>(find).fetch_optional(&mut admin).await? else { return Ok(false) };
    let mut connection = PgConnection::connect(&server.url(&name)).await?;
    let twice = "insert into outbox_messages (namespace, topic, payload) \
                 select namespace, topic, payload from outbox_messages limit 1";
    Ok(sqlx::raw_sql(twice).execute(&mut connection).await?.rows_affected() > 0)
}

#[cfg(feature = "http")]
#[tokio::test]
async fn a_sink_gets_every_message_of_both_sides() -> Result<()> {
    let (receiver, directory) = (Receiver::start().await?, tempfile::tempdir()?);
    let arguments = ["run", "sink", "--quick", "--sink", &receiver.url, "--json", "found.json"];
    bench(&arguments, directory.path()).await?.succeeded()?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(directory.path().join("found.json"))?)?;
    let round = &report["databases"][0]["scenarios"][0]["rounds"][0];
    let sent = |side: &str| round[side]["messages"].as_u64().with_context(|| format!("{round:#}"));
    ensure!(receiver.arrivals().len() as u64 == sent("bare")? + sent("ours")?, "{round:#}");
    Ok(())
}

#[tokio::test]
async fn an_unknown_scenario_gets_the_nearest_and_nothing_is_run() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ran = bench(&["run", "drain-delet"], directory.path()).await?.failed_with(2)?;
    ensure!(ran.err.contains("did you mean drain-delete?"), "{ran:#?}");
    let listed = bench(&["list"], directory.path()).await?.succeeded()?;
    ensure!(listed.out.contains("drain-delete") && listed.out.contains("idle-50"), "{listed:#?}");
    let lines = bench(&["list", "--json"], directory.path()).await?.succeeded()?.json_lines()?;
    ensure!(lines.iter().any(|line| line["name"] == "enqueue-32" && line["clients"] == 32), "{lines:#?}");
    Ok(())
}

/// A report of one scenario with these rates.
fn report(rates: [f64; 3]) -> Value {
    let side = |rate: f64| json!({ "messages": 1_000, "seconds": 1_000.0 / rate, "own_cpu_us": 5.0 });
    let rounds: Vec<Value> = rates.iter().map(|rate| json!({ "bare": side(1_000.0), "ours": side(*rate) })).collect();
    json!({
        "schema": 1, "postrider": "0.1.0", "build": "release", "began": "2026-01-01T00:00:00Z", "quick": false,
        "machine": { "cores": 2 },
        "databases": [{
            "database": "postgres", "version": "15", "settings": {},
            "scenarios": [{
                "name": "drain-keep", "about": "a backlog", "kind": "drain", "broken": [], "summary": {}, "rounds": rounds,
            }],
        }],
    })
}

#[tokio::test]
async fn a_comparison_says_what_changed_beyond_noise() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = [("a", [500.0, 510.0, 505.0]), ("b", [502.0, 512.0, 507.0]), ("c", [700.0, 720.0, 710.0])];
    for (name, rates) in files {
        std::fs::write(directory.path().join(name), report(rates).to_string())?;
    }
    let same = bench(&["compare", "a", "b"], directory.path()).await?.succeeded()?;
    ensure!(same.out.contains("no change beyond noise"), "{same:#?}");
    let changed = bench(&["compare", "a", "c"], directory.path()).await?.succeeded()?;
    ensure!(changed.out.contains("+40.6 %") && changed.out.contains("better"), "{changed:#?}");
    let lines = bench(&["compare", "c", "a", "--json"], directory.path()).await?.succeeded()?.json_lines()?;
    let rate = lines.iter().find(|line| line["figure"] == "messages_per_second").context("the rate")?;
    ensure!(rate["verdict"] == "worse", "{rate:#}");
    let cpu = lines.iter().find(|line| line["figure"] == "own_cpu_us").context("the CPU")?;
    ensure!(cpu["verdict"] == "no change beyond noise", "{cpu:#}");
    std::fs::write(directory.path().join("d"), "{}")?;
    bench(&["compare", "a", "d"], directory.path()).await?.failed_with(2)?;
    Ok(())
}
