//! Runs a command with private, durable servers: `with_servers [--only postgres] COMMAND …`.
//!
//! PostgreSQL and MariaDB sync every commit and have a gigabyte of buffers each, so that figures are of the kind that a real
//! server gives. Their addresses are in the variable `POSTRIDER_BENCH_DATABASE_URL`, with a space between and with SQLite
//! beside them. The servers end with the command, whose exit code is passed on. With `--only postgres` there is no other
//! server that takes memory and time from what is measured.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use testkit::{MariaDb, MySqlDatabase, Postgres, Signal};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

const VARIABLE: &str = "POSTRIDER_BENCH_DATABASE_URL";
const USAGE: &str = "usage: with_servers [--only postgres] COMMAND …";

/// A MariaDB with a database. Both end when they are dropped.
async fn mariadb() -> Result<(MariaDb, MySqlDatabase)> {
    let server = MariaDb::builder()
        .durable()
        .setting("innodb_buffer_pool_size", "1G")
        .setting("innodb_log_file_size", "1G")
        .start()
        .await?;
    let database = server.create_database().await?;
    Ok((server, database))
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut words = std::env::args_os().skip(1).peekable();
    let alone = words.next_if(|word| word == "--only").is_some();
    if alone {
        ensure!(words.next().is_some_and(|word| word == "postgres"), USAGE);
    }
    let program = words.next().context(USAGE)?;
    let postgres =
        Postgres::builder().durable().setting("shared_buffers", "1GB").setting("max_wal_size", "8GB").start().await?;
    let mariadb = if alone { None } else { Some(mariadb().await?) };
    let urls = match &mariadb {
        None => postgres.url("postgres"),
        Some((_, database)) => format!("{} {} sqlite:", postgres.url("postgres"), database.url()),
    };
    let mut command = Command::new(&program);
    let mut child = command.args(words).env(VARIABLE, urls).spawn();
    let child = child.as_mut().map_err(|error| anyhow::anyhow!("cannot run {}: {error}", program.display()))?;
    let pid = Pid::from_raw(i32::try_from(child.id().context("it ended at once")?)?);
    // Ctrl-C reaches the command by itself, and a signal to us is passed on: it cleans up, and we wait for it.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => drop(kill(pid, Signal::SIGTERM)),
        }
    };
    Ok(ExitCode::from(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
