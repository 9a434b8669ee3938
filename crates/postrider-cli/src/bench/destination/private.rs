//! A server that is started for a scenario and ends with it.
//!
//! Promise: the server, its children and its directory are gone when this is dropped, and also when this process is killed: a shell
//! in a process group of its own holds the server and reads from a pipe whose only other end is ours. A port that somebody else took
//! meanwhile is exchanged for another. Fails with the end of the server's log when it does not start.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

/// The slowest of them takes ten seconds by itself; a busy machine gives it little time.
const READY_WITHIN: Duration = Duration::from_secs(120);
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// So many ports are tried.
const TRIES: usize = 5;
/// Of a log that tells why a server did not start.
const LINES: usize = 8;

/// Runs a server, given after the directory, until its input ends. That the server has ended by itself is told by a file.
const GUARD: &str = r#"
trap '' HUP INT TERM
directory=$1
shift
exec 3<&0
"$@" </dev/null >"$directory/log" 2>&1 3<&- &
server=$!
{ read -r _ <&3; [ -e "$directory/ended" ] || kill -s KILL "$server"; } &
reader=$!
wait "$server"
: >"$directory/ended"
wait "$reader"
rm -rf "$directory"
kill -s KILL 0
"#;

/// A running server. Dropping it ends it.
pub struct Private {
    guard: Child,
    orders: Option<ChildStdin>,
    directory: TempDir,
    pub port: u16,
}

impl Private {
    /// Starts a server on a free port and waits until its log has a text, in which `{port}` stands for the port. The command is made
    /// from port and directory.
    pub async fn start(ready: &str, command: impl Fn(u16, &Path) -> Result<Vec<OsString>>) -> Result<Self> {
        for _ in 1..TRIES {
            match Self::try_to_start(ready, &command).await {
                Err(error) if is_taken(&error) => {}
                done => return done,
            }
        }
        Self::try_to_start(ready, &command).await
    }

    async fn try_to_start(ready: &str, command: impl Fn(u16, &Path) -> Result<Vec<OsString>>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("postrider_bench_").tempdir()?;
        let port = free_port()?;
        let mut guard = Command::new("/bin/sh")
            .args(["-c", GUARD, "postrider-bench"])
            .arg(directory.path())
            .args(command(port, directory.path())?)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("/bin/sh cannot be run")?;
        let server = Self { orders: guard.stdin.take(), guard, directory, port };
        server.until(&ready.replace("{port}", &port.to_string())).await?;
        Ok(server)
    }

    async fn until(&self, ready: &str) -> Result<()> {
        let began = Instant::now();
        // Somebody else may answer on the port, so the log must say it, too.
        while !(self.log().contains(ready) && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()) {
            if self.directory.path().join("ended").exists() {
                bail!("it ended at once: {}", self.end_of_log());
            }
            if began.elapsed() > READY_WITHIN {
                bail!("it was not ready within {} s: {}", READY_WITHIN.as_secs(), self.end_of_log());
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
        Ok(())
    }

    fn log(&self) -> String {
        let bytes = std::fs::read(self.directory.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// What it is called, with the version that its log tells behind a text.
    #[allow(dead_code)] // in a build without those that tell it
    pub fn describe(&self, name: &str, before_version: &str) -> String {
        let log = self.log();
        let rest = log.split_once(before_version).map_or("", |(_, rest)| rest);
        let version = rest.trim_start().split(|c: char| c.is_whitespace() || c == ',').next().unwrap_or_default();
        format!("{name} {version}").trim_end().to_owned()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The end of its input is the order to end the server.
        drop(self.orders.take());
        let _ = self.guard.wait();
    }
}

fn is_taken(error: &anyhow::Error) -> bool {
    let text = error.to_string().to_lowercase();
    ["address already in use", "address in use", "eaddrinuse", "already in use by"]
        .iter()
        .any(|part| text.contains(part))
}

/// A port that is free at this moment.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A program on the path.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// The same; the error says what to do.
pub fn needed(name: &str, example: &str) -> Result<PathBuf> {
    program(name).with_context(|| {
        format!("{name} is not on this machine; install it, or name a server that you have with --sink {example}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str) -> Result<Vec<OsString>> {
        Ok(["/bin/sh", "-c", script].map(OsString::from).into())
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_told_with_its_log() {
        let started = Private::start("ready", |_, _| command("echo no licence; exit 3")).await;
        let why = started.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("it ended at once") && why.contains("no licence"), "{why}");
    }

    #[tokio::test]
    async fn nothing_of_a_server_is_left() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        // Its child would outlive it: only the group is ended as a whole.
        let directory = tempfile::tempdir().expect("a directory");
        let child = directory.path().join("child");
        let script = format!("sleep 1000 & echo $! >{}; echo ready; wait", child.display());
        let mut server = Private {
            guard: Command::new("/bin/sh")
                .args(["-c", GUARD, "test"])
                .arg(directory.path())
                .args(command(&script).expect("a command"))
                .stdin(Stdio::piped())
                .process_group(0)
                .spawn()
                .expect("a shell"),
            orders: None,
            directory,
            port,
        };
        server.orders = server.guard.stdin.take();
        server.until("ready").await.expect("it runs");
        let pid = std::fs::read_to_string(&child).expect("a number").trim().parse().expect("a number");
        let home = server.directory.path().to_path_buf();
        drop(server);
        assert!(!home.exists());
        let pid = nix::unistd::Pid::from_raw(pid);
        let gone = || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            nix::sys::signal::kill(pid, None).is_err() || state.contains(") Z ")
        };
        let began = Instant::now();
        while !gone() && began.elapsed() < READY_WITHIN {
            std::thread::sleep(LOOKS_EVERY);
        }
        assert!(gone(), "{pid} still runs");
    }

    #[test]
    fn a_program_is_found_on_the_path() {
        assert!(program("sh").is_some_and(|sh| sh.is_file()));
        assert_eq!(program("no-such-server-of-postrider"), None);
        let why = needed("no-such-server-of-postrider", "nats://HOST:PORT").expect_err("none").to_string();
        assert!(why.contains("--sink nats://HOST:PORT"), "{why}");
    }
}
