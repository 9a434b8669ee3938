//! The private servers keep their promises: they answer, are separate, come back, and never outlive their owner.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, PgPool};
use testkit::{Database, Mode, PgBouncer, Postgres, Proxy, Signal, Worker, eventually};

const SOON: Duration = Duration::from_secs(120);
/// Set in the copy of this test program that starts servers and is then killed.
const OWNER: &str = "POSTRIDER_TEST_SERVER_OWNER";

async fn number(pool: &PgPool, sql: &'static str) -> Result<i64> {
    Ok(sqlx::query_scalar(sql).fetch_one(pool).await?)
}

async fn show(database: &Database, setting: &'static str) -> Result<String> {
    Ok(sqlx::query_scalar(setting).fetch_one(&database.pool().await?).await?)
}

#[tokio::test]
async fn a_server_starts_quickly_and_answers() -> Result<()> {
    // The other tests of this file start servers at the same time, on as few as two cores.
    let postgres = testkit::quickly(Duration::from_secs(6), Postgres::start).await?;
    let database = postgres.create_database().await?;
    assert_eq!(number(&database.pool().await?, "select 1::int8").await?, 1);
    assert_eq!(show(&database, "show fsync").await?, "off");
    assert!(postgres.bin_dir().join("psql").is_file());
    Ok(())
}

#[tokio::test]
async fn databases_are_separate_and_can_be_created_at_once() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let databases = futures::future::try_join_all((0..10).map(|_| postgres.create_database())).await?;
    for database in &databases {
        database.pool().await?.execute("create table only_here (id int8)").await?;
    }
    assert!(databases.iter().all(|one| databases.iter().filter(|other| other.name() == one.name()).count() == 1));
    Ok(())
}

#[tokio::test]
async fn terminated_backends_lose_their_connection() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let (mine, other) = (postgres.create_database().await?, postgres.create_database().await?);
    let mut victim = PgConnection::connect(&mine.url()).await?;
    let mut bystander = PgConnection::connect(&other.url()).await?;
    assert_eq!(postgres.terminate_backends(mine.name()).await?, 1);
    assert!(victim.execute("select 1").await.is_err());
    bystander.execute("select 1").await?;
    Ok(())
}

#[tokio::test]
async fn a_durable_server_keeps_its_data_and_port_over_stop_kill_and_restart() -> Result<()> {
    let postgres = Postgres::builder().durable().setting("shared_buffers", "64MB").start().await?;
    let (port, database) = (postgres.port(), postgres.create_database().await?);
    assert_eq!(show(&database, "show fsync").await?, "on");
    assert_eq!(show(&database, "show shared_buffers").await?, "64MB");
    database.pool().await?.execute("create table kept (id int8)").await?;

    for round in 1..=4 {
        let pool = database.pool().await?;
        pool.execute("insert into kept values (1)").await?;
        let before = postgres.pid().context("the server has no pid")?;
        match round {
            1 => postgres.stop_immediate().await?,
            2 | 3 => postgres.kill_hard().await?,
            _ => {}
        }
        if round < 4 {
            assert_eq!(postgres.pid(), None);
            assert!(PgConnection::connect(&database.url()).await.is_err());
        }
        postgres.restart().await?;
        assert_ne!(postgres.pid(), Some(before));
        assert_eq!(number(&database.pool().await?, "select count(*) from kept").await?, round);
    }
    assert_eq!(postgres.port(), port);
    Ok(())
}

#[tokio::test]
async fn kill_hard_ends_a_backend_in_the_middle_of_its_work() -> Result<()> {
    let postgres = Postgres::start().await?;
    let url = postgres.url("postgres");
    let busy = tokio::spawn(async move {
        let mut connection = PgConnection::connect(&url).await?;
        // busy on the processor, where a backend does not notice the death of its postmaster
        connection.execute("do $$ begin loop perform 1; end loop; end $$").await
    });
    let watch = PgPool::connect(&postgres.url("postgres")).await?;
    let sql = "select count(*) from pg_stat_activity where query like 'do %' and state = 'active'";
    eventually(SOON, || async { number(&watch, sql).await.is_ok_and(|count| count == 1) }).await;
    postgres.kill_hard().await?;
    assert!(busy.await?.is_err());
    postgres.restart().await
}

#[tokio::test]
async fn pgbouncer_answers_and_shares_server_connections_between_clients() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let database = postgres.create_database().await?;
    let bouncer = PgBouncer::start(postgres, database.name()).await?;
    let mut clients = Vec::new();
    for _ in 0..8 {
        // as a pooler refuses start-up parameters that it does not know
        let options: PgConnectOptions = bouncer.url().parse()?;
        let mut client = options.extra_float_digits(None).connect().await?;
        sqlx::raw_sql("select 1").execute(&mut client).await?;
        clients.push(client);
    }
    let direct = database.pool().await?;
    let sql = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    assert!((1..=5).contains(&number(&direct, sql).await?));
    Ok(())
}

#[tokio::test]
async fn a_commit_whose_reply_is_cut_has_happened() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let database = postgres.create_database().await?;
    let pool = database.pool().await?;
    pool.execute("create table t (id int8)").await?;
    let proxy = Proxy::start(([127, 0, 0, 1], postgres.port()).into()).await?;
    let mut client = PgConnection::connect(&database.url_via(proxy.port())).await?;
    proxy.cut_reply_containing(b"COMMIT\0");
    let mut transaction = client.begin().await?;
    transaction.execute("insert into t values (1)").await?;
    assert!(transaction.commit().await.is_err());
    assert_eq!((proxy.cuts(), number(&pool, "select count(*) from t").await?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a_reset_connection_is_an_error_for_the_client() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], postgres.port()).into()).await?;
    let database = postgres.create_database().await?;
    let mut client = PgConnection::connect(&database.url_via(proxy.port())).await?;
    client.execute("select 1").await?;
    proxy.set(Mode::Reset);
    assert!(client.execute("select 1").await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_directory_also_when_frozen() -> Result<()> {
    for frozen in [false, true] {
        let postgres = Postgres::start().await?;
        let pid = postgres.pid().context("the server has no pid")?;
        let (process, directory) = (format!("/proc/{pid}"), directory_of(&postgres)?);
        assert!(Path::new(&process).exists() && Path::new(&directory).exists());
        if frozen {
            nix::sys::signal::kill(pid, Signal::SIGSTOP)?;
        }
        drop(postgres);
        assert!(!Path::new(&process).exists() && !Path::new(&directory).exists());
    }
    Ok(())
}

/// The throw-away directory, which has the data directory and the log.
fn directory_of(postgres: &Postgres) -> Result<String> {
    let parent = postgres.data_dir().parent().context("the data directory has no parent")?;
    Ok(parent.display().to_string())
}

#[tokio::test]
async fn servers_are_gone_after_their_owner_was_killed() -> Result<()> {
    for fate in ["running", "restarted", "killed", "frozen"] {
        let args = ["--exact", "owner_of_servers", "--ignored", "--nocapture"];
        let mut owner = Worker::spawn(std::env::current_exe()?, &args, &[(OWNER, fate)])?;
        let ready = owner.wait_for_line(|line| line.contains("ready "), SOON).await?;
        let paths: Vec<String> =
            ready.split_whitespace().skip_while(|word| *word != "ready").skip(1).map(str::to_owned).collect();
        assert_eq!(paths.len(), if fate == "killed" { 2 } else { 3 }, "{ready}");
        assert!(paths.iter().all(|path| Path::new(path).exists()), "{ready}");
        owner.signal(Signal::SIGKILL)?;
        owner.wait(SOON).await?;
        let gone = || async { paths.iter().all(|path| !Path::new(path).exists()) };
        testkit::within(SOON, &format!("the end of the servers in {ready}"), gone).await?;
    }
    Ok(())
}

#[tokio::test]
async fn servers_are_gone_after_their_owner_was_killed_while_starting_them() -> Result<()> {
    let parent = tempfile::tempdir()?;
    std::fs::set_permissions(parent.path(), Permissions::from_mode(0o1777))?;
    let place = parent.path().to_str().context("the temporary directory has a strange name")?;
    for moment in 1..=12 {
        let args = ["--exact", "owner_of_servers", "--ignored", "--nocapture"];
        let mut owner = Worker::spawn(std::env::current_exe()?, &args, &[(OWNER, "running"), ("TMPDIR", place)])?;
        // the promise is about every moment of the start, so the moments are what varies here
        tokio::time::sleep(Duration::from_millis(60) * moment).await;
        owner.signal(Signal::SIGKILL)?;
        owner.wait(SOON).await?;
        let what = format!("the end of what was begun in {place}, moment {moment}");
        testkit::within(SOON, &what, || async { is_empty(place) && !is_mentioned(place) }).await?;
    }
    Ok(())
}

fn is_empty(directory: &str) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// True when a process has the directory in its command line.
fn is_mentioned(directory: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut commands = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    commands.any(|command| String::from_utf8_lossy(&command).contains(directory))
}

/// Not a test: starts servers, prints where they are, and waits to be killed.
#[tokio::test]
#[ignore = "run by servers_are_gone_after_their_owner_was_killed"]
async fn owner_of_servers() -> Result<()> {
    let Ok(fate) = std::env::var(OWNER) else { return Ok(()) };
    let postgres = Postgres::start().await?;
    match fate.as_str() {
        "restarted" => {
            postgres.kill_hard().await?;
            postgres.restart().await?;
        }
        "killed" => postgres.kill_hard().await?,
        "frozen" => nix::sys::signal::kill(postgres.pid().context("the server has no pid")?, Signal::SIGSTOP)?,
        _ => {}
    }
    let bouncer = PgBouncer::start(&postgres, "postgres").await?;
    let mut paths = vec![directory_of(&postgres)?];
    let pids = [postgres.pid(), bouncer.pid()];
    paths.extend(pids.into_iter().flatten().map(|pid| format!("/proc/{pid}")));
    println!("\nready {}", paths.join(" "));
    std::future::pending().await
}
