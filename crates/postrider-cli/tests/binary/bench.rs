//! `postrider bench`: that it measures what it says, checks what arrives, and leaves nothing behind. Never how fast anything is.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testkit::{Postgres, Signal, within};
use tokio::process::Command;

#[cfg(feature = "http")]
use crate::support::Receiver;
use crate::support::{PATIENCE, Ran, Site, postrider};

/// Some of each kind but that of the sinks.
const KINDS: [&str; 13] = [
    "enqueue-8",
    "enqueue-100",
    "drain-keep",
    "drain-in-order",
    "drain-by-key",
    "steady-by-key",
    "idle-50",
    "history-10m",
    "snapshot",
    "relays-2",
    "slow-sink",
    "fair",
    "payload-64k",
];

/// How long a run may take that starts servers: as long as a busy machine needs.
const LONG_PATIENCE: Duration = Duration::from_secs(900);

async fn bench(arguments: &[&str], directory: &Path) -> Result<Ran> {
    let mut all = vec!["bench"];
    all.extend(arguments);
    postrider(&all, &[], None, directory).await
}

/// The binary in a directory, with this path, and with this directory for temporary files.
fn command(arguments: &[&str], path: &str, directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.arg("bench").args(arguments).env_clear().env("PATH", path).env("TMPDIR", directory);
    command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs it to its end, however long that takes.
async fn long_bench(arguments: &[&str], path: &str, directory: &Path) -> Result<Ran> {
    let output = command(arguments, path, directory).output();
    let ended = tokio::time::timeout(LONG_PATIENCE, output).await.context("it does not end")??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ran { status: ended.status, out: text(ended.stdout), err: text(ended.stderr) })
}

fn read_report(directory: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&std::fs::read_to_string(directory.join("found.json"))?)?)
}

/// A quick run of one of each kind on a database; its report.
async fn quick(url: &str) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let mut arguments = vec!["run", "--quick", "--database-url", url, "--json", "found.json", "--report", "page"];
    arguments.extend(KINDS);
    let ran = long_bench(&arguments, "", directory.path()).await?.succeeded()?;
    ensure!(ran.out.contains("every message arrived once"), "{ran:#?}");
    let page = std::fs::read_to_string(directory.path().join("page/report.md"))?;
    ensure!(page.contains("| drain-keep |") && page.contains("]("), "{page}");
    for file in std::fs::read_dir(directory.path().join("page"))? {
        let file = file?.path();
        let is_plot = file.extension().is_some_and(|extension| extension == "svg");
        ensure!(!is_plot || std::fs::read_to_string(&file)?.starts_with("<svg"), "{}", file.display());
    }
    read_report(directory.path())
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
        // Nothing is compared with claims that are fair.
        let sides: &[&str] = if scenario["kind"] == "fair" { &["ours"] } else { &["bare", "ours"] };
        for side in sides {
            let measured = &scenario["rounds"][0][side];
            ensure!(
                measured["messages"].as_u64() > Some(0) && measured["seconds"].as_f64() > Some(0.0),
                "{scenario:#}"
            );
            let is_of_latency = ["idle", "steady", "fair"].iter().any(|kind| scenario["kind"] == *kind);
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

#[tokio::test]
async fn a_quick_run_on_mariadb_is_complete_and_drops_its_database() -> Result<()> {
    let site = Site::mariadb().await?;
    check(&quick(&site.url).await?, "mysql")?;
    let left = "select count(*) from information_schema.schemata where schema_name like 'postrider\\_bench\\_%'";
    ensure!(site.source().await?.count(left).await? == 0, "the database is still there");
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

/// What a run of sinks found on SQLite: everything arrived and was counted at its destination, nothing was left out, and nothing is left.
async fn measure_sinks(sinks: &[&str], path: &str) -> Result<()> {
    let (directory, temporary) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (json, page) = (directory.path().join("found.json"), directory.path().join("page"));
    let (json, page) = (json.display().to_string(), page.display().to_string());
    let mut arguments = vec!["run", "--quick", "--json", &json, "--report", &page];
    arguments.extend(sinks);
    let ran = long_bench(&arguments, path, temporary.path()).await?.succeeded()?;
    let report = read_report(directory.path())?;
    let on = &report["databases"][0];
    ensure!(on["left_out"].is_null() && !ran.out.contains("left out"), "{ran:#?}");
    let page = std::fs::read_to_string(directory.path().join("page/report.md"))?;
    for (at, sink) in sinks.iter().enumerate() {
        let scenario = &on["scenarios"][at];
        ensure!(scenario["name"] == *sink && scenario["broken"] == json!([]), "{scenario:#}");
        ensure!(scenario["destination"]["counted_there"] == true, "{scenario:#}");
        for side in ["bare", "ours"] {
            ensure!(scenario["rounds"][0][side]["messages"].as_u64() > Some(0), "{scenario:#}");
        }
        let ratio = &scenario["summary"]["messages_per_second"]["ours_to_bare"]["median"];
        ensure!(ratio.as_f64() > Some(0.0), "{scenario:#}");
        ensure!(page.contains(&format!("| {sink} |")) && page.contains(&format!("\n{sink}: to ")), "{page}");
    }
    ensure!(std::fs::read_dir(temporary.path())?.next().is_none(), "something is left in {:?}", temporary.keep());
    Ok(())
}

/// The path with the programs that come with the Python of the tests.
async fn path() -> Result<String> {
    let python = tokio::task::spawn_blocking(testkit::brokers::venv::python).await??;
    let ours = python.parent().context("it is in a directory")?.to_path_buf();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = [ours].into_iter().chain(std::env::split_paths(&rest)).collect();
    Ok(std::env::join_paths(all)?.to_string_lossy().into_owned())
}

#[cfg(all(feature = "http", feature = "kafka", feature = "provider"))]
#[tokio::test]
async fn sinks_that_need_no_other_program_are_measured_everywhere() -> Result<()> {
    measure_sinks(&["sink-stdout", "sink-http", "sink-kafka", "sink-provider"], "").await
}

#[cfg(all(feature = "nats", feature = "redis"))]
#[tokio::test]
async fn nats_and_redis_are_started_for_their_sinks_and_are_gone_afterwards() -> Result<()> {
    measure_sinks(&["sink-nats", "sink-redis"], &path().await?).await
}

#[cfg(feature = "amqp")]
#[tokio::test]
async fn rabbitmq_is_started_for_its_sink_and_is_gone_afterwards() -> Result<()> {
    measure_sinks(&["sink-amqp"], &path().await?).await
}

#[cfg(all(feature = "sqs", feature = "sns"))]
#[tokio::test]
async fn moto_is_started_for_the_sinks_of_amazon_and_is_gone_afterwards() -> Result<()> {
    measure_sinks(&["sink-sqs", "sink-sns"], &path().await?).await
}

/// The emulator cannot be had on every machine. Where it is missing, the sink must be left out and say so.
#[cfg(feature = "pubsub")]
#[tokio::test]
async fn the_emulator_of_pubsub_is_started_where_it_is_there() -> Result<()> {
    if testkit::brokers::pubsub::Emulator::is_installed() {
        return measure_sinks(&["sink-pubsub"], &path().await?).await;
    }
    let directory = tempfile::tempdir()?;
    let ran = long_bench(&["run", "sink-pubsub"], &path().await?, directory.path()).await?.failed_with(1)?;
    ensure!(ran.err.contains("the emulator of Pub/Sub"), "{ran:#?}");
    Ok(())
}

#[tokio::test]
async fn a_sink_whose_server_is_missing_is_left_out_unless_it_was_named() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let few = ["run", "--quick", "sink-st*", "sink-n*", "sink-s?s", "--json", "found.json", "--report", "page"];
    let ran = long_bench(&few, "", directory.path()).await?.succeeded()?;
    ensure!(
        ran.out.contains("sink-nats was left out: ") && ran.out.contains("; 3 scenarios were left out"),
        "{ran:#?}"
    );
    let report = read_report(directory.path())?;
    let on = &report["databases"][0];
    let left_out: Vec<&Value> = on["left_out"].as_array().context("some")?.iter().map(|it| &it["scenario"]).collect();
    ensure!(left_out == ["sink-nats", "sink-sqs", "sink-sns"], "{on:#}");
    ensure!(on["scenarios"].as_array().context("some")?.len() == 1, "{on:#}");
    let page = std::fs::read_to_string(directory.path().join("page/report.md"))?;
    ensure!(page.contains("sink-nats was left out: "), "{page}");
    for name in ["sink-pubsub", "sink-nats", "sink-amqp", "sink-redis", "sink-sqs", "sink-sns"] {
        let ran = long_bench(&["run", "--quick", "sink-stdout", name], "", directory.path()).await?.failed_with(1)?;
        ensure!(ran.err.contains(&format!("{name} cannot be measured: ")) && ran.err.contains("--sink"), "{ran:#?}");
        ensure!(ran.out.is_empty(), "nothing is measured before that is said: {ran:#?}");
    }
    Ok(())
}

#[cfg(feature = "nats")]
#[tokio::test]
async fn a_server_that_does_not_start_is_left_out_unless_it_was_named() -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let (directory, programs) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let program = programs.path().join("nats-server");
    std::fs::write(&program, "#!/bin/sh\necho the moon is in the wrong phase\nexit 7\n")?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let ran = long_bench(&["run", "--quick", "sink-nat*"], &path, directory.path()).await?.succeeded()?;
    ensure!(
        ran.out.contains("the moon is in the wrong phase") && ran.out.contains("1 scenario was left out"),
        "{ran:#?}"
    );
    let ran = long_bench(&["run", "--quick", "sink-nats"], &path, directory.path()).await?.failed_with(1)?;
    ensure!(ran.err.contains("sink-nats on sqlite: it failed") && ran.err.contains("the wrong phase"), "{ran:#?}");
    ensure!(std::fs::read_dir(directory.path())?.next().is_none(), "something is left");
    Ok(())
}

/// Also if it is killed, and no destructor runs.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_server_does_not_outlive_the_benchmark() -> Result<()> {
    let (directory, database) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let url = format!("sqlite:{}", database.path().display());
    let mut child = command(&["run", "sink-redis", "--database-url", &url], &path().await?, directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    within(LONG_PATIENCE, "a server", || async { redis_port(directory.path()).is_some() }).await?;
    let port = redis_port(directory.path()).context("a port")?;
    child.start_kill()?;
    child.wait().await?;
    let is_gone = || async {
        let is_empty = std::fs::read_dir(directory.path()).is_ok_and(|mut entries| entries.next().is_none());
        is_empty && std::net::TcpStream::connect(("127.0.0.1", port)).is_err()
    };
    within(PATIENCE, "the server's end", is_gone).await
}

/// The port that a Redis tells in its log, which is in a directory below this one.
#[cfg(feature = "redis")]
fn redis_port(directory: &Path) -> Option<u16> {
    let logs = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path().join("log"));
    let text =
        logs.filter_map(|log| std::fs::read_to_string(log).ok()).find(|text| text.contains("Ready to accept"))?;
    let (_, rest) = text.split_once("port=")?;
    rest.split('.').next()?.parse().ok()
}

/// Streams are emptied behind the benchmark's back: the sink said that every message was delivered, and Redis has none.
#[cfg(feature = "redis")]
#[tokio::test]
async fn what_the_destination_lost_fails_the_run() -> Result<()> {
    let (directory, path) = (tempfile::tempdir()?, path().await?);
    let arguments = ["run", "sink-redis", "--rounds", "1"];
    let ran = tokio::select! {
        ran = long_bench(&arguments, &path, directory.path()) => ran?.failed_with(1)?,
        emptied = empty_streams(directory.path()) => return emptied,
    };
    ensure!(ran.err.contains("the result is broken") && ran.err.contains("at the destination, "), "{ran:#?}");
    Ok(())
}

/// Empties all streams of the benchmark's Redis again and again.
#[cfg(feature = "redis")]
async fn empty_streams(directory: &Path) -> Result<()> {
    within(LONG_PATIENCE, "a server", || async { redis_port(directory).is_some() }).await?;
    let port = redis_port(directory).context("a port")?;
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    loop {
        // It goes on until the server ends, and with it the benchmark.
        let keys: redis::RedisResult<Vec<String>> =
            redis::cmd("KEYS").arg("bench-*").query_async(&mut connection).await;
        for key in keys.unwrap_or_default() {
            let trim = redis::cmd("XTRIM").arg(key).arg("MAXLEN").arg(0).query_async::<i64>(&mut connection).await;
            drop(trim);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(feature = "http")]
#[tokio::test]
async fn a_sink_that_was_named_gets_every_message_of_both_sides_and_nothing_else() -> Result<()> {
    let (receiver, directory) = (Receiver::start().await?, tempfile::tempdir()?);
    let arguments = ["run", "sink-http", "--quick", "--sink", &receiver.url, "--json", "found.json"];
    long_bench(&arguments, "", directory.path()).await?.succeeded()?;
    let report = read_report(directory.path())?;
    let scenario = &report["databases"][0]["scenarios"][0];
    let sent = |side: &str| scenario["rounds"][0][side]["messages"].as_u64().with_context(|| format!("{scenario:#}"));
    ensure!(receiver.arrivals().len() as u64 == sent("bare")? + sent("ours")?, "{scenario:#}");
    ensure!(scenario["destination"]["counted_there"] == false, "{scenario:#}");
    ensure!(!report.to_string().contains(&receiver.url), "the address is in the report");
    Ok(())
}

#[cfg(feature = "nats")]
#[tokio::test]
async fn an_address_that_cannot_be_is_refused_and_one_that_does_not_answer_fails() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (wrong, scenario, what) in [
        ("ftp://127.0.0.1", "sink-http", "--sink is the address of a sink"),
        ("smtp=127.0.0.1", "sink-http", "--sink is the address of a sink"),
        ("nats=http://127.0.0.1:4222", "sink-nats", "servers"),
        ("nats://127.0.0.1:1", "drain-keep", "sink-nats is not among the scenarios"),
    ] {
        let ran = bench(&["run", "--quick", scenario, "--sink", wrong], directory.path()).await?.failed_with(2)?;
        ensure!(ran.err.contains(what) && ran.out.is_empty(), "{ran:#?}");
    }
    let nobody = ["run", "--quick", "sink-nats", "--sink", "nats://127.0.0.1:1"];
    let ran = bench(&nobody, directory.path()).await?.failed_with(1)?;
    ensure!(ran.err.contains("the sink nats does not answer") && ran.out.is_empty(), "{ran:#?}");
    Ok(())
}

#[tokio::test]
async fn an_unknown_scenario_gets_the_nearest_and_nothing_is_run() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ran = bench(&["run", "drain-delet"], directory.path()).await?.failed_with(2)?;
    ensure!(ran.err.contains("did you mean drain-delete?"), "{ran:#?}");
    let listed = bench(&["list"], directory.path()).await?.succeeded()?;
    ensure!(listed.out.contains("drain-delete") && listed.out.contains("idle-50"), "{listed:#?}");
    ensure!(listed.out.contains("sink-nats") && listed.out.contains("sink-sqs"), "{listed:#?}");
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
    let mut elsewhere = report([500.0, 510.0, 505.0]);
    elsewhere["databases"][0]["scenarios"][0]["destination"] = json!({ "what": "a broker", "counted_there": true });
    std::fs::write(directory.path().join("e"), elsewhere.to_string())?;
    let careful = bench(&["compare", "a", "e"], directory.path()).await?.succeeded()?;
    ensure!(careful.out.contains("the destinations of drain-keep differ"), "{careful:#?}");
    std::fs::write(directory.path().join("d"), "{}")?;
    bench(&["compare", "a", "d"], directory.path()).await?.failed_with(2)?;
    Ok(())
}
