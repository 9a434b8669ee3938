//! Google's emulator of Pub/Sub, a Java program. It keeps everything in memory.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::guard::Guard;
use crate::home::Home;
use crate::port::on_free_port;

/// Where its package puts it.
const DIRECTORY: &str = "/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib";

/// A running emulator. Dropping it ends it.
pub struct Emulator {
    port: u16,
    _guard: Guard,
}

impl Emulator {
    /// Whether the emulator and a Java that can run it are there.
    pub fn is_installed() -> bool {
        jar().is_some() && java().is_some()
    }

    /// Starts an emulator on a free port.
    pub async fn start() -> Result<Self> {
        tokio::task::spawn_blocking(|| start().context("cannot start the emulator of Pub/Sub")).await?
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn start() -> Result<Emulator> {
    let jar = jar().context("there is none: install google-cloud-cli-pubsub-emulator")?;
    let java = java().context("there is no java: install the Debian package default-jre-headless")?;
    let mut started = None;
    let port = on_free_port(|port| {
        let home = Home::create("postrider-pubsub-", None)?;
        let temporary = format!("-Djava.io.tmpdir={}", home.path().display());
        let mut command =
            vec![java.clone().into(), "-Xmx512m".into(), "-XX:TieredStopAtLevel=1".into(), temporary.into()];
        command.extend(["-jar".into(), jar.clone().into(), "--host=127.0.0.1".into(), format!("--port={port}").into()]);
        // It has no children and no data, so the hardest signal is the simplest.
        let mut guard = Guard::new(home, "KILL", &command)?;
        guard.start_until(|pid, home| is_ready(port, pid, home))?;
        started = Some(guard);
        Ok(())
    })?;
    Ok(Emulator { port, _guard: started.context("it did not start")? })
}

/// Another process may answer on the port, so our own log must say that it listens as well.
fn is_ready(port: u16, _: Pid, home: &Home) -> bool {
    let listens = home.log_after(0).contains(&format!("listening on {port}"));
    listens && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn jar() -> Option<PathBuf> {
    let entries = std::fs::read_dir(DIRECTORY).ok()?.flatten();
    entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|extension| extension == "jar"))
}

fn java() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join("java")).find(|program| program.is_file())
}
